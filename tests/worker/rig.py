"""Workers inside the test's own process: made with short intervals, watched, always ended."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import redis as redis_py

from wurk_django.clock import monotonic
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.jobs import job
from wurk_django.worker import identity
from wurk_django.worker.busy import Busy, Tally
from wurk_django.worker.dispatcher import Dispatcher
from wurk_django.worker.event_loop import EventLoop
from wurk_django.worker.launcher import Launcher
from wurk_django.worker.manager import Manager
from wurk_django.worker.work import Work

T = TypeVar("T")

#: Intervals so short that a test need not wait, and no reaper that would meddle.
QUICK = Options(
    timeout=1,
    poll_interval=0.05,
    scheduler_initial_wait=0.05,
    heartbeat_interval=0.2,
    heartbeat_ttl=10,
    reaper_interval=60,
    fetch_block=0.3,
)


def wait_for(condition: Callable[[], T], timeout_s: float = 5.0, what: str = "it") -> T:
    """The first truthy value of the condition."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.002)
    return value


def stays(condition: Callable[[], object], seconds: float) -> bool:
    """Is the condition true all this time?"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(0.005)
    return True


def payload(name: str = "work", *args: Any, **fields: Any) -> bytes:
    """The bytes of a job; a jid of its own unless one is given."""
    item = {"class": name, "args": list(args), "jid": os.urandom(12).hex(), "retry": True, "queue": "default", **fields}
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()


def numbered(count: int, name: str = "work", **fields: Any) -> list[bytes]:
    """Jobs with the arguments 0, 1, 2, …"""
    return [payload(name, number, **fields) for number in range(count)]


def enqueue(redis: redis_py.Redis, queue: str, *raws: bytes) -> None:
    """Put jobs on a queue, the first to run first."""
    redis.sadd("queues", queue)
    for start in range(0, len(raws), 1000):
        redis.lpush(f"queue:{queue}", *raws[start : start + 1000])


def queued(redis: redis_py.Redis, queue: str = "default") -> list[bytes]:
    """What waits on a queue, the next to run first."""
    return redis.lrange(f"queue:{queue}", 0, -1)[::-1]


def private(redis: redis_py.Redis, queue: str = "default", capsule: int = 0) -> list[bytes]:
    """What this process has claimed from a queue, newest first."""
    return redis.lrange(identity.private_list(queue, capsule), 0, -1)


def blocked(redis: redis_py.Redis) -> int:
    """How many blocking claims are open on the server."""
    return redis.info("clients")["blocked_clients"]


def scores(redis: redis_py.Redis, name: str) -> list[tuple[dict[str, Any], float]]:
    """The members of a sorted set, parsed, with their scores."""
    return [(json.loads(member), score) for member, score in redis.zrange(name, 0, -1, withscores=True)]


def threads() -> list[str]:
    """The names of the living threads that belong to workers."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("wurk-"))


class Recorder:
    """Declares jobs and keeps what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.gates: list[threading.Event] = []

    def job(self, name: str = "work", act: Callable[..., Any] | None = None, **options: Any) -> Any:
        """A job that records its arguments, then does what `act` does."""

        def perform(*args: Any) -> Any:
            self.calls.append(args)
            return act(*args) if act is not None else None

        return job(name=name, **options)(perform)

    def gated_job(self, name: str = "slow", timeout_s: float = 10.0) -> threading.Event:
        """A job that records its arguments and waits until the event that is returned is set."""
        gate = threading.Event()
        self.gates.append(gate)

        def perform(*args: Any) -> None:
            self.calls.append(args)
            deadline = time.monotonic() + timeout_s
            while not gate.is_set() and time.monotonic() < deadline:
                time.sleep(0.005)  # short: an interrupt is met between two bytecodes

        job(name=name)(perform)
        return gate

    def failing_job(self, error: BaseException, name: str = "work", **options: Any) -> Any:
        """A job that raises."""

        def fail(*_args: Any) -> None:
            raise error

        return self.job(name, fail, **options)


class Rig:
    """Makes configurations, dispatchers, managers and launchers for one test, and ends what it made."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.errors: list[tuple[BaseException, dict[str, Any]]] = []
        self.deaths: list[tuple[dict[str, Any], BaseException]] = []
        self._endings: list[Callable[[], object]] = []
        self._configs: list[Config] = []

    def config(
        self,
        queues: Iterable[str] = ("default",),
        concurrency: int = 2,
        *,
        url: str | None = None,
        redis: RedisOptions | None = None,
        **options: Any,
    ) -> Config:
        config = Config(replace(QUICK, **options), redis or RedisOptions(url or self.url))
        config.error_handlers[:] = [lambda error, context: self.errors.append((error, context))]
        config.death_handlers.append(lambda job, error: self.deaths.append((job, error)))
        config.capsule("default", queues, concurrency)
        self._configs.append(config)
        return config

    def dispatcher(self, config: Config | None = None, *, index: int = 0, tended: bool = False) -> Dispatcher:
        """A dispatcher whose threads are the test's own. Without `tended` nothing is sent behind the test's back."""
        config = config or self.config()
        dispatcher = Dispatcher(next(iter(config.capsules.values())), index, config.report)
        self._endings.append(dispatcher.close)
        if tended:
            dispatcher.start()
        return dispatcher

    def manager(self, config: Config | None = None, **options: Any) -> Manager:
        """The running threads of one capsule, without heartbeat, scheduler and reaper."""
        config = config or self.config(**options)
        config.freeze()
        loop = EventLoop()
        self._endings.append(loop.stop)
        manager = Manager(next(iter(config.capsules.values())), 0, Busy(), Tally(), loop)
        self._endings.append(lambda: manager.stop(monotonic()))
        manager.start()
        return manager

    def launcher(self, config: Config | None = None, *, start: bool = True, **options: Any) -> Launcher:
        """A whole worker."""
        launcher = Launcher(config or self.config(**options))
        self._endings.append(launcher.stop)
        if start:
            launcher.start()
        return launcher

    def take_in_thread(self, dispatcher: Dispatcher) -> Taking:
        """Let a thread take a job."""
        taking = Taking(dispatcher)
        self._endings.append(taking.end)
        return taking

    def messages(self) -> list[str]:
        """What was reported so far."""
        return [f"{context.get('context')}: {error}" for error, context in list(self.errors)]

    def close(self) -> None:
        """End everything; an ending that fails does not keep the others from running."""
        failures: list[BaseException] = []
        for end in reversed(self._endings):
            try:
                end()
            except Exception as error:
                failures.append(error)
        for config in self._configs:
            config.reset_redis_pools()
        with suppress(AssertionError):
            wait_for(lambda: not threads(), 4)
        assert not failures, failures
        assert not threads(), "threads of a worker outlived it"


class Taking(threading.Thread):
    """A thread that takes one job from a dispatcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(name="taker", daemon=True)
        self.dispatcher = dispatcher
        self.work: Work | None = None
        self.start()

    def run(self) -> None:
        self.work = self.dispatcher.take()

    def result(self, timeout_s: float = 5.0) -> Work | None:
        self.join(timeout_s)
        assert not self.is_alive(), "the thread still waits for a job"
        return self.work

    def end(self) -> None:
        self.dispatcher.quiet()
        self.join(5)


def take(dispatcher: Dispatcher, count: int) -> list[Work]:
    """Take jobs one after the other in this thread."""
    taken: list[Work] = []
    for _ in range(count):
        work = dispatcher.take()
        assert work is not None
        taken.append(work)
    return taken


def raws(works: Sequence[Work | None]) -> list[bytes]:
    return [work.raw for work in works if work is not None]


def warm(redis: redis_py.Redis, dispatcher: Dispatcher, queue: str, job_s: float = 1.0) -> None:
    """Run one job through: the scripts are loaded, the paused set is known, and a job is known to take `job_s`."""
    enqueue(redis, queue, payload("warm"))
    [work] = take(dispatcher, 1)
    dispatcher.finish(work, job_s)
    dispatcher.flush()
