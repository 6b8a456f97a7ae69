"""The long-lived peers of the interop tests; all of them work on the one server of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.interop.django_peer import DjangoClient
from tests.support.ruby import RubyClient, RubyWeb, require_ruby
from tests.support.servers import RedisServer


@pytest.fixture(scope="package")
def url(redis_server: RedisServer) -> str:
    """The server of this run; where there is no Ruby peer, the test ends here."""
    require_ruby()
    return redis_server.url


@pytest.fixture
def store(url: str, redis: redis_py.Redis) -> redis_py.Redis:
    """The tests' own view of Redis, empty at the start."""
    return redis


@pytest.fixture(scope="package")
def ruby(url: str) -> Iterator[RubyClient]:
    with RubyClient(url) as client:
        yield client


@pytest.fixture(scope="package")
def django(url: str) -> Iterator[DjangoClient]:
    with DjangoClient(url) as client:
        yield client


@pytest.fixture(scope="package")
def web(url: str) -> Iterator[RubyWeb]:
    with RubyWeb(url) as pages:
        yield pages
