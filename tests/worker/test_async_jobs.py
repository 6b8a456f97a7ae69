"""`async def` jobs: one loop for all of them, the context of the job, and what a hard stop does to them."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import redis as redis_py

from tests.worker.rig import Recorder, Rig, enqueue, payload, private, queued, scores, stays, threads, wait_for
from wurk_django import current_job, job
from wurk_django.worker.control import Shutdown
from wurk_django.worker.event_loop import EventLoop
from wurk_django.worker.interrupt import Interruptible

variable: ContextVar[str] = ContextVar("variable", default="nothing")


def declare(act: Any, name: str = "awaited") -> None:
    async def perform(*args: Any) -> None:
        await act(*args)

    job(name=name)(perform)


def test_an_async_job_runs_on_the_loop_of_the_process_and_is_acknowledged(redis: redis_py.Redis, rig: Rig) -> None:
    ran: list[tuple[Any, ...]] = []

    async def act(number: int) -> None:
        await asyncio.sleep(0)
        ran.append((number, asyncio.get_running_loop(), threading.current_thread().name))

    declare(act)
    manager = rig.manager(rig.config(concurrency=3))
    enqueue(redis, "default", *(payload("awaited", number) for number in range(10)))

    wait_for(lambda: len(ran) == 10)
    wait_for(lambda: manager.idle)

    assert {number for number, _, _ in ran} == set(range(10))
    assert len({loop for _, loop, _ in ran}) == 1
    assert {name for _, _, name in ran} == {"wurk-event-loop"}
    assert private(redis) == []


def test_no_loop_is_made_while_no_job_needs_one(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job()
    rig.manager()
    enqueue(redis, "default", payload())
    wait_for(lambda: jobs.calls)

    assert "wurk-event-loop" not in threads()


def test_async_jobs_wait_for_each_other_on_one_loop_up_to_the_concurrency(redis: redis_py.Redis, rig: Rig) -> None:
    together: list[int] = []
    running = 0

    async def act() -> None:
        nonlocal running
        running += 1
        together.append(running)
        await asyncio.sleep(0.05)
        running -= 1

    declare(act)
    rig.manager(rig.config(concurrency=3))
    enqueue(redis, "default", *(payload("awaited") for _ in range(9)))

    wait_for(lambda: len(together) == 9)
    assert max(together) == 3


def test_an_async_job_knows_which_job_it_is_and_sees_the_context_of_its_middleware(
    redis: redis_py.Redis, rig: Rig
) -> None:
    seen: list[Any] = []

    class Sets:
        def call(self, _job: object, job: dict[str, Any], _queue: str, call_next: Any) -> Any:
            variable.set(job["jid"])
            return call_next()

    async def act() -> None:
        await asyncio.sleep(0.01)
        found = current_job()
        assert found is not None
        inner = await asyncio.create_task(below())
        seen.append((found.jid, found.queue, variable.get(), inner))

    async def below() -> str:
        found = current_job()
        assert found is not None
        return found.jid

    declare(act)
    config = rig.config(["mail"], 2)
    config.server_middleware.add(Sets)
    rig.manager(config)
    enqueue(redis, "mail", payload("awaited", jid="a"), payload("awaited", jid="b"))

    wait_for(lambda: len(seen) == 2)
    assert sorted(seen) == [("a", "mail", "a", "a"), ("b", "mail", "b", "b")]


def test_an_async_job_that_fails_is_retried_as_any_other(redis: redis_py.Redis, rig: Rig) -> None:
    async def act() -> None:
        await asyncio.sleep(0)
        raise ValueError("boom")

    declare(act)
    manager = rig.manager()
    enqueue(redis, "default", payload("awaited"))
    wait_for(lambda: redis.zcard("retry"))
    wait_for(lambda: manager.idle)

    [(failed, _)] = scores(redis, "retry")
    assert (failed["error_class"], failed["error_message"]) == ("ValueError", "boom")


def test_an_async_job_that_cancels_itself_has_failed(redis: redis_py.Redis, rig: Rig) -> None:
    async def act() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    declare(act)
    rig.manager()
    enqueue(redis, "default", payload("awaited"))

    wait_for(lambda: redis.zcard("retry") == 1)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=["SystemExit", "KeyboardInterrupt"])
def test_an_async_job_that_raises_what_ends_programs_does_not_end_the_loop_for_the_others(
    error: BaseException, redis: redis_py.Redis, rig: Rig
) -> None:
    ran: list[str] = []
    started = threading.Event()

    async def exits() -> None:
        raise error

    async def waits() -> None:
        started.set()
        await asyncio.sleep(0.2)
        ran.append("beside")

    async def follows() -> None:
        ran.append("after")

    declare(exits, "exits")
    declare(waits, "waits")
    declare(follows, "follows")
    manager = rig.manager(rig.config(concurrency=2))
    enqueue(redis, "default", payload("waits"))
    assert started.wait(5)
    enqueue(redis, "default", payload("exits"), payload("follows"))

    wait_for(lambda: len(ran) == 2)
    wait_for(lambda: manager.idle)
    [(failed, _)] = scores(redis, "retry")
    assert failed["error_class"] == type(error).__name__


def test_a_hard_stop_cancels_an_async_job_and_gives_it_back(redis: redis_py.Redis, rig: Rig) -> None:
    told: list[str] = []
    started = threading.Event()

    async def act() -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0.05)
            told.append("cleaned")

    declare(act)
    raw = payload("awaited")
    launcher = rig.launcher(timeout=0.1)
    enqueue(redis, "default", raw)
    assert started.wait(5)

    before = time.monotonic()
    launcher.stop()

    assert time.monotonic() - before < 2.5
    assert told == ["cancelled", "cleaned"]
    assert queued(redis) == [raw]
    assert private(redis) == []
    assert redis.exists("retry", "dead") == 0
    assert "wurk-event-loop" not in threads()


def test_a_loop_that_was_stopped_serves_again(rig: Rig) -> None:
    loop = EventLoop()

    async def answer() -> int:
        return 42

    assert loop.run(answer(), Interruptible()) == 42
    loop.stop()
    assert loop.run(answer(), Interruptible()) == 42
    loop.stop()
    loop.stop()


def test_what_still_runs_when_the_loop_ends_is_cancelled(rig: Rig) -> None:
    loop = EventLoop()
    ended: list[str] = []

    async def leaves_a_task() -> None:
        tasks.append(asyncio.create_task(lingers()))
        await asyncio.sleep(0.01)

    async def lingers() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("cancelled")

    tasks: list[asyncio.Task[None]] = []
    loop.run(leaves_a_task(), Interruptible())
    assert ended == []
    loop.stop()

    assert ended == ["cancelled"]
    assert tasks[0].cancelled()


# --- the switch that lets a job be interrupted ------------------------------------------------------------------------


class Interrupted(threading.Thread):
    """Spins inside its switch until it is interrupted, then leaves it and spins on."""

    def __init__(self, switch: Interruptible) -> None:
        super().__init__(daemon=True)
        self.switch = switch
        self.inside = threading.Event()
        self.stage = "before"
        self.gone_on = 0

    def run(self) -> None:
        try:
            self.switch.enter()
            try:
                self.inside.set()
                self.stage = "inside"
                while True:
                    pass
            finally:
                self.switch.leave()
        except Shutdown:
            self.stage = "interrupted"
        for _ in range(200_000):
            self.gone_on += 1


def test_an_interrupt_hits_the_job_once_and_nothing_after_it(rig: Rig) -> None:
    thread = Interrupted(Interruptible())
    thread.start()
    assert thread.inside.wait(5)

    thread.switch.interrupt()
    thread.switch.interrupt()
    thread.join(5)

    assert (thread.stage, thread.gone_on) == ("interrupted", 200_000)


def test_a_thread_that_is_interrupted_before_its_job_starts_none(rig: Rig) -> None:
    switch = Interruptible()
    switch.interrupt()

    with pytest.raises(Shutdown):
        switch.enter()


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_threads", "rig")
def test_an_interrupt_at_the_very_end_of_a_job_hits_inside_or_not_at_all() -> None:
    outcomes: Counter[str] = Counter()

    def work(switch: Interruptible, entered: threading.Event, length: int) -> None:
        outcome = "finished"
        try:
            try:
                switch.enter()
                try:
                    entered.set()
                    for _ in range(length):
                        pass
                finally:
                    switch.leave()
            except Shutdown:
                outcome = "interrupted"
            for _ in range(500):
                pass
        except BaseException as error:
            outcome = f"{type(error).__name__} while booking"
        outcomes[outcome] += 1

    for _ in range(600):
        switch, entered = Interruptible(), threading.Event()
        thread = threading.Thread(target=work, args=(switch, entered, random.randrange(6000)))
        thread.start()
        entered.wait(5)
        switch.interrupt()
        thread.join(5)

    assert set(outcomes) == {"finished", "interrupted"}, outcomes


def test_a_waiting_thread_is_woken_by_its_cancel_and_not_by_an_exception(rig: Rig) -> None:
    switch = Interruptible()
    cancelled = threading.Event()
    switch.enter()
    switch.waiting(cancelled.set)

    switch.interrupt()

    assert cancelled.is_set()
    assert stays(lambda: True, 0.02), "no exception arrives"
    switch.waiting(None)
    switch.leave()
