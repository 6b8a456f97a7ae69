"""Fixtures of the buffer's room: a client behind a line that can be cut, and what its buffer told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis as redis_py

from tests.client.conftest import Stored
from tests.support.proxy import Proxy
from wurk_django import buffer, connection
from wurk_django.buffer import PushBuffer
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions


class Producer:
    """A client whose pushes survive an outage. `counts` are its counters, `errors` what its handlers were told."""

    def __init__(self, url: str, **options: Any) -> None:
        self.config = Config(redis=RedisOptions(url, connect_timeout_s=0.5, read_timeout_s=0.5))
        self.config.options = replace(self.config.options, **{"reliable_push_drain_interval": 0, **options})
        self.counts: list[tuple[str, int]] = []
        self.errors: list[BaseException] = []
        self.config.counters.append(lambda name, amount: self.counts.append((name, amount)))
        self.config.error_handlers[:] = [lambda error, _context: self.errors.append(error)]
        self.buffer: PushBuffer = buffer.install(self.config)
        self.client = Client(self.config)

    def push(self, number: int, **item: Any) -> str:
        jid = self.client.push({"class": "Foo", "args": [number], **item})
        assert jid is not None
        return jid

    def bulk(self, *numbers: int, **items: Any) -> list[str | None]:
        return self.client.push_bulk({"class": "Foo", "args": [[number] for number in numbers], **items})

    def kept(self) -> list[int]:
        """The arguments of the jobs in the buffer, the oldest first."""
        return [entry.payload["args"][0] for entry in self.buffer._entries]

    def counted(self, name: str) -> int:
        return sum(amount for counted, amount in self.counts if counted == name)

    def close(self) -> None:
        self.buffer._entries.clear()
        self.config.reset_redis_pools()


@pytest.fixture
def make_producer(redis_url: str) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def make(url: str = redis_url, **options: Any) -> Producer:
        made.append(Producer(url, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


@pytest.fixture
def producer(proxy: Proxy, make_producer: Callable[..., Producer]) -> Producer:
    """A producer behind the proxy; no thread of its own delivers."""
    return make_producer(proxy.url)


class Outage:
    """Redis behind the proxy goes away and comes back."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def begin(self) -> None:
        self._proxy.refuse = True
        self._proxy.reset_all()

    def end(self) -> None:
        self._proxy.refuse = False


@pytest.fixture
def outage(proxy: Proxy) -> Outage:
    return Outage(proxy)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries are noted, not slept."""
    noted: list[float] = []

    class Clock:
        monotonic = staticmethod(time.monotonic)
        sleep = staticmethod(noted.append)

    monkeypatch.setattr(connection, "time", Clock)
    return noted


@pytest.fixture
def stored(redis: redis_py.Redis) -> Stored:
    return Stored(redis)


def wait_for(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "it") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.002)
