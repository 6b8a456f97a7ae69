"""Fixtures of the worker's room: jobs of a test's own, workers in this process, a server that may be hurt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.servers import RedisServer
from tests.worker.rig import Recorder, Rig
from wurk_django import registry
from wurk_django.connection import Redis
from wurk_django.script import Script
from wurk_django.storage import orphans, processes, queues, sorted_sets
from wurk_django.worker.reaper import Reaper


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that a test declares vanish with it."""
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))


@pytest.fixture
def jobs() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    for gate in recorder.gates:
        gate.set()


@pytest.fixture
def rig(redis: redis_py.Redis, redis_url: str, jobs: Recorder, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Workers on the server of the run. Ended with the test; no thread may outlive it."""
    for stands_longer in {"proxy", "full_server", "server"} & set(request.fixturenames):
        request.getfixturevalue(stands_longer)  # what workers speak to is taken down after them
    for module in (queues, sorted_sets, processes, orphans):
        for script in (value for value in vars(module).values() if isinstance(value, Script)):
            redis.script_load(script.source)  # a fault aimed at a script must not hit its loading
    rig = Rig(redis_url)
    yield rig
    for gate in jobs.gates:
        gate.set()
    rig.close()


@pytest.fixture(scope="module")
def own_server(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server that the tests of a module may hurt."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server that a test may kill."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def full_server(own_server: RedisServer) -> Iterator[redis_py.Redis]:
    """The raw client of that server, empty; `config_set("maxmemory", 1)` makes it full. Undone at the end."""
    with own_server.client() as client:
        client.config_set("maxmemory", 0)
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of commands fails at once, without the pauses before its second and third attempt."""
    monkeypatch.setitem(Redis.__init__.__kwdefaults__, "attempts", 1)


@pytest.fixture
def reaper(rig: Rig) -> Reaper:
    """A reaper of the queue `q` that a test lets sweep by hand."""
    config = rig.config(["q"], reaper_grace=30)
    config.freeze()
    return Reaper(config)
