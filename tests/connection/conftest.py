"""Fixtures of the connection's room: pools that get closed, a clock that does not sleep, reports of retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.support.proxy import Proxy
from wurk_django import connection
from wurk_django.connection import Redis, RedisOptions, RetryReport

# A shared machine is slow now and then; that is no finding.
settings.register_profile("wurk", deadline=None)
settings.load_profile("wurk")


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Redis]]:
    """Makes pools from a URL; `reports` takes what the retry hook is told, other keywords are RedisOptions'."""
    made: list[Redis] = []

    def make(url: str, size: int = 10, reports: list[RetryReport] | None = None, **options: Any) -> Redis:
        on_retry = None if reports is None else reports.append
        pool = Redis(RedisOptions(url, **options), size, "test", on_retry)
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def pool(redis_url: str, make_pool: Callable[..., Redis]) -> Redis:
    """A pool of the server of the run."""
    return make_pool(redis_url)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries are noted, not slept."""
    noted: list[float] = []

    class Clock:
        monotonic = staticmethod(time.monotonic)
        sleep = staticmethod(noted.append)

    monkeypatch.setattr(connection, "time", Clock)
    return noted


@pytest.fixture
def reports() -> list[RetryReport]:
    return []


@pytest.fixture
def through(proxy: Proxy, make_pool: Callable[..., Redis], reports: list[RetryReport]) -> Redis:
    """A pool whose line to the server can be broken, with a short patience."""
    return make_pool(proxy.url, reports=reports, connect_timeout_s=0.3, read_timeout_s=0.3)


def wait_for(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "it") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.002)
