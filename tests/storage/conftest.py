"""Fixtures of the storage room: our own connections beside the raw client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.connection import Redis, RedisOptions


@pytest.fixture
def pool(redis_url: str) -> Iterator[Redis]:
    """Our connections to the server, empty when the test starts."""
    pool = Redis(RedisOptions(redis_url))
    yield pool
    pool.close()


@pytest.fixture
def broken_line(proxy: Proxy) -> Iterator[Redis]:
    """Our connections through the proxy."""
    pool = Redis(RedisOptions(proxy.url))
    yield pool
    pool.close()


@pytest.fixture
def full(redis_server: RedisServer) -> Iterator[tuple[RedisServer, Redis]]:
    """A server of the test's own and our connections to it; `config_set(maxmemory=1)` fills it."""
    with RedisServer() as server:
        pool = Redis(RedisOptions(server.url))
        yield server, pool
        pool.close()


@pytest.fixture(scope="module")
def module_redis(redis_server: RedisServer) -> Iterator[redis_py.Redis]:
    """A raw client for property tests, which clean up between their examples themselves."""
    with redis_server.client() as client:
        client.flushall()
        yield client


@pytest.fixture(scope="module")
def module_pool(redis_server: RedisServer) -> Iterator[Redis]:
    """Our connections for property tests."""
    pool = Redis(RedisOptions(redis_server.url))
    yield pool
    pool.close()
