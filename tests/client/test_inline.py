"""Running a job here and now: both chains, a JSON round trip, no Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wurk_django import config as configuration
from wurk_django import current_job, job
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import InvalidJob
from wurk_django.jobs import Job


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    """A configuration whose Redis does not exist."""
    config = Config(redis=RedisOptions("redis://127.0.0.1:1/0"))
    monkeypatch.setattr(configuration, "_default", config)
    return config


class Log:
    """A middleware for both chains."""

    lines: list[Any]

    def __init__(self, name: str, stop: bool = False) -> None:
        self.name = name
        self.stop = stop

    def call(self, job: Any, payload: dict[str, Any], queue: str, *rest: Any) -> Any:
        Log.lines.append((self.name, type(job).__name__, payload["class"], queue))
        return None if self.stop else rest[-1]()


def test_a_job_runs_through_both_chains_and_sees_what_a_worker_would_give_it(config: Config) -> None:
    Log.lines = []
    config.client_middleware.add(Log, "client")
    config.server_middleware.add(Log, "server")

    class Show(Job, name="Show", queue="low"):
        def perform(self, *args: Any, **kwargs: Any) -> None:
            found = current_job()
            assert found is not None
            Log.lines.append((args, kwargs, self.jid == found.jid, self.bid, found.bid, found.queue, found.name))

    assert Show.set(bid="b").perform_inline([1.0, {"a": None}], k="v") is True

    assert Log.lines == [
        ("client", "type", "Show", "low"),
        ("server", "Show", "Show", "low"),
        (([1.0, {"a": None}],), {"k": "v"}, True, "b", "b", "low", "Show"),
    ]
    assert current_job() is None


def test_arguments_are_copied_by_a_json_round_trip(config: Config) -> None:
    given: list[Any] = [{"a": [1]}]
    seen: list[Any] = []

    @job(name="Change")
    def change(value: Any) -> None:
        seen.append(value)
        value[0]["a"].append(2)

    change.perform_inline(given)

    assert given == [{"a": [1]}]
    assert seen[0] == [{"a": [1, 2]}]


@pytest.mark.parametrize("chain", ["client_middleware", "server_middleware"])
def test_a_chain_that_stops_gives_none_and_nothing_runs(chain: str, config: Config) -> None:
    Log.lines = []
    ran: list[int] = []
    getattr(config, chain).add(Log, "stop", True)

    @job(name="Never")
    def never() -> None:
        ran.append(1)

    assert never.perform_inline() is None
    assert ran == []
    assert len(Log.lines) == 1


def test_its_error_is_the_callers(config: Config) -> None:
    @job(name="Fail")
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        fail.perform_inline()
    assert current_job() is None


def test_complex_arguments_are_refused_as_in_a_push(config: Config) -> None:
    @job(name="Take")
    def take(value: Any) -> None: ...

    with pytest.raises(InvalidJob, match=r"Take: args\[0\]"):
        take.perform_inline(object())
    with pytest.raises(InvalidJob):
        take.perform_inline(float("nan"))


def test_sync_makes_perform_async_run_here(config: Config) -> None:
    ran: list[Any] = []

    @job(name="Sync")
    def work(value: int) -> None:
        ran.append(value)

    work.set(sync=True).perform_async(5)
    work.perform_sync(6)

    assert ran == [5, 6]


def test_an_async_job_runs_in_a_loop_of_its_own_or_in_a_thread(config: Config) -> None:
    ran: list[Any] = []

    @job(name="Async")
    async def work(value: int) -> None:
        await asyncio.sleep(0)
        ran.append(value)

    async def within_a_loop() -> None:
        assert await work.aperform_inline(2) is True

    assert work.perform_inline(1) is True
    asyncio.run(within_a_loop())

    assert ran == [1, 2]
