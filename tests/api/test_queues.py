"""Pausing queues from code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from wurk_django import config as configuration
from wurk_django.api import queues
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import InvalidJob


@pytest.fixture
def config(redis_url: str) -> Iterator[Config]:
    config = Config(redis=RedisOptions(redis_url))
    yield config
    config.reset_redis_pools()


def test_pause_and_unpause_say_whether_anything_changed(redis: redis_py.Redis, config: Config) -> None:
    assert queues.pause("low", config)
    assert not queues.pause("low", config)
    assert queues.is_paused("low", config)
    assert queues.paused(config) == {"low"}
    assert redis.smembers("paused") == {b"low"}

    assert queues.unpause("low", config)
    assert not queues.unpause("low", config)
    assert not queues.is_paused("low", config)
    assert queues.paused(config) == frozenset()


def test_without_a_configuration_the_default_one_is_used(
    redis: redis_py.Redis, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "_default", config)

    assert queues.pause("low")
    assert queues.is_paused("low")
    assert queues.paused() == {"low"}
    assert queues.unpause("low")


def test_what_cannot_be_a_queue_name_is_refused(config: Config, redis: redis_py.Redis) -> None:
    with pytest.raises(InvalidJob, match="cannot be a queue name"):
        queues.pause("a|b", config)
    assert not redis.exists("paused")
