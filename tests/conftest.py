"""Fixtures that every room uses: a real Redis server, a client for assertions, a proxy that breaks the line."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.support.servers import NoServerProgram, RedisServer


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server for the whole run, one for each pytest-xdist worker. A test that hurts its server makes its own."""
    try:
        server = RedisServer()
    except NoServerProgram as missing:
        if os.environ.get("CI"):
            pytest.fail(f"no Redis server in CI: {missing}")
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[redis_py.Redis]:
    """A raw client (bytes) of a server that is empty when the test starts, scripts and functions included."""
    with redis_server.client() as client:
        client.flushall()
        client.script_flush()
        yield client


@pytest.fixture
def redis_url(redis: redis_py.Redis, redis_server: RedisServer) -> str:
    """The URL of the server, empty when the test starts."""
    return redis_server.url


@pytest.fixture
def proxy(redis: redis_py.Redis, redis_server: RedisServer) -> Iterator[Proxy]:
    """A proxy in front of the server; give `proxy.url` to the code under test."""
    with Proxy(redis_server.port) as proxy:
        yield proxy
