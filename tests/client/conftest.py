"""Fixtures of the client's room: a default configuration on the test's own server, and a registry that forgets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis as redis_py

from wurk_django import config as configuration
from wurk_django import registry
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions

NOW = 1_796_073_053.160_5  # the wall clock of tests that stop it


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that a test declares vanish with it."""
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))


@pytest.fixture
def make_config(redis_url: str) -> Iterator[Callable[..., Config]]:
    """Makes configurations with options of their own; their connections are closed at the end."""
    made: list[Config] = []

    def make(url: str = redis_url, **options: Any) -> Config:
        config = Config(redis=RedisOptions(url))
        config.options = replace(config.options, **options)
        made.append(config)
        return config

    yield make
    for config in made:
        config.reset_redis_pools()


@pytest.fixture
def config(make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> Config:
    """The default configuration of this test, on its server."""
    config = make_config()
    monkeypatch.setattr(configuration, "_default", config)
    return config


@pytest.fixture
def client(config: Config) -> Client:
    return Client()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> float:
    """The wall clock stands at NOW."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(time, "time_ns", lambda: int(NOW * 1_000_000) * 1000)
    return NOW


class Stored:
    """What is in Redis, parsed; the next to run first."""

    def __init__(self, redis: redis_py.Redis) -> None:
        self._redis = redis

    def raw(self, queue: str = "default") -> list[bytes]:
        return list(reversed(self._redis.lrange(f"queue:{queue}", 0, -1)))

    def queue(self, name: str = "default") -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in self.raw(name)]

    def one(self, queue: str = "default") -> dict[str, Any]:
        [job] = self.queue(queue)
        return job

    def schedule(self) -> list[tuple[dict[str, Any], float]]:
        return [(json.loads(raw), score) for raw, score in self._redis.zrange("schedule", 0, -1, withscores=True)]

    def names(self) -> set[bytes]:
        return set(self._redis.smembers("queues"))

    def keys(self) -> list[bytes]:
        return sorted(self._redis.keys())


@pytest.fixture
def stored(redis: redis_py.Redis) -> Stored:
    return Stored(redis)
