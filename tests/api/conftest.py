"""Fixtures of the data API: a configuration of the test's server, and jobs as they lie in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py

from wurk_django.config import Config
from wurk_django.connection import RedisOptions


@pytest.fixture
def config(redis_url: str) -> Iterator[Config]:
    config = Config(redis=RedisOptions(redis_url))
    yield config
    config.reset_redis_pools()


Fill = Callable[..., list[bytes]]


def payload(jid: str, **fields: Any) -> bytes:
    """A job's bytes."""
    job = {"retry": True, "queue": "default", "class": "ApiJob", "args": [1], "jid": jid, "created_at": 1, **fields}
    return json.dumps(job, separators=(",", ":")).encode()


@pytest.fixture
def fill(redis: redis_py.Redis) -> Fill:
    """Put `count` jobs into a set, one each second from `score` on; returns their bytes, the earliest first."""

    def fill(name: str, count: int, score: float = 1000.0, step: float = 1.0, **fields: Any) -> list[bytes]:
        raws = [payload(f"jid{number:06}", **fields) for number in range(count)]
        pairs = [(raw, score + step * number) for number, raw in enumerate(raws)]
        for at in range(0, count, 5000):
            redis.zadd(name, dict(pairs[at : at + 5000]))
        return raws

    return fill
