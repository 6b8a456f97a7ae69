"""What a forked child does: it produces, or works until its scenario is played; by the proxy or straight to Redis."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.enumerator import jobs
from wurk_django import connection
from wurk_django.client import Client
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.worker import dispatcher, identity
from wurk_django.worker.launcher import Launcher

ALL_QUEUES = ("default", "other", "low", *(f"q{number}" for number in range(12)))
DEADLINE_S = 8.0  # for a living process to get everything done, whatever was lost on the way
NEVER_S = 1000.0
STUCK = 3  # exit code: the deadline passed
SPEED_UP = 20.0  # pauses after errors are that much shorter here; what follows them is not

#: Nothing periodic runs unless a scenario is about it: the commands that it sends are the same in each run then.
CALM: dict[str, Any] = {
    "timeout": 2.0,
    "heartbeat_interval": NEVER_S,
    "reaper_interval": NEVER_S,
    "reaper_watch_interval": NEVER_S,
    "reaper_grace": 0.0,
    "scheduler_initial_wait": NEVER_S,
    "leader_interval": NEVER_S,
    "fetch_block": 1.0,
}


class Actor:
    """One child's hands: its ledger, a client for looking and preparing, and its way to Redis."""

    def __init__(self, directory: Path, url: str, direct_url: str) -> None:
        self.directory = directory
        self.redis_options = RedisOptions(url, read_timeout_s=1.0)
        self.direct = redis_py.Redis.from_url(direct_url, protocol=2, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        self.jids: list[str] = []
        jobs.open_ledger(directory)
        logging.getLogger("wurk").setLevel(logging.CRITICAL)
        _speed_up()

    def config(self, **options: Any) -> Config:
        config = Config(Options(**{**CALM, **options}), self.redis_options)
        config.death_handlers.append(jobs.on_death)
        config.error_handlers[:] = [self._note_error]
        return config

    # --- producing ------------------------------------------------------------------------------------------------

    def produce(self, push: Callable[[Client, str], object], jids: Sequence[str], **options: Any) -> None:
        """Push for each of these jids. The ledger says which were tried and which were acknowledged."""
        config = self.config(**options)
        client = Client(config)
        for jid in jids:
            jobs.note("tried", jid)
            try:
                push(client, jid)
            except (RedisUnavailable, RedisRefused):
                continue
            jobs.note("acked", jid)
        config.reset_redis_pools()

    # --- working --------------------------------------------------------------------------------------------------

    def work(
        self,
        queues: Sequence[str] = ("default",),
        concurrency: int = 1,
        *,
        once_up: Callable[[Launcher], object] = lambda _launcher: None,
        until: Callable[[], bool] | None = None,
        configure: Callable[[Config], object] = lambda _config: None,
        on_signal: Callable[[str], object] = lambda _name: None,
        **options: Any,
    ) -> None:
        """Start a worker, wait, stop it. Until: nothing waits on its queues and nothing is claimed."""
        config = self.config(**options)
        if not config.capsules:
            config.capsule("default", queues, concurrency)
        configure(config)
        launcher = Launcher(config, on_signal=on_signal)
        launcher.start()
        once_up(launcher)
        self.wait_until(until or (lambda: self.is_drained(config.queue_names()) and launcher.idle))
        launcher.stop()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Leave the process as stuck when this does not come true in time."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                os._exit(STUCK)
            time.sleep(0.002)

    def is_drained(self, queues: Sequence[str]) -> bool:
        """Nothing waits on these queues, and no private list of this process holds anything."""
        pipe = self.direct.pipeline(transaction=True)
        for name in queues:
            pipe.llen(f"queue:{name}")
            for capsule in range(2):
                pipe.llen(identity.private_list(name, capsule))
        return not any(pipe.execute())

    def is_blocked(self, count: int = 1) -> bool:
        """Does the worker wait on so many queues?"""
        return int(self.direct.info("clients")["blocked_clients"]) >= count

    def has(self, event: str, count: int = 1) -> bool:
        """Does the ledger have so many entries of an event?"""
        return (self.directory / "ledger").read_text().count(f"{event} ") >= count

    def make_due(self) -> bool:
        """Everything scheduled or to be retried is due now. True when there was nothing."""
        names = [(name, self.direct.zrange(name, 0, -1)) for name in ("schedule", "retry")]
        for name, members in names:
            if members:
                self.direct.zadd(name, dict.fromkeys(members, 1.0), xx=True)
        return not any(members for _, members in names)

    def _note_error(self, error: BaseException, context: dict[str, Any]) -> None:
        with open(self.directory / "errors", "a") as file:
            file.write(f"{context.get('context')}: {type(error).__name__}: {str(error)[:200]}\n")


def rescue(actor: Actor) -> None:
    """The worker that comes after: takes back what the dead left, and runs everything to its end."""
    names = list(ALL_QUEUES)
    actor.direct.delete("paused")  # a scenario may have died between pausing and unpausing

    def is_done() -> bool:
        actor.make_due()
        moment = actor.direct.pipeline(transaction=True)  # a job may be on its way between the two kinds of places
        moment.keys("queue:*").exists("schedule", "retry")
        return not any(moment.execute())

    actor.work(
        names, 4, until=is_done, fetch_block=0.2, poll_interval_average=0.02, scheduler_initial_wait=0.0,
        reaper_interval=0.1,
    )  # fmt: skip


def _speed_up() -> None:
    """Shorten the pauses after errors, and the time until a process looks for claims that it does not know of."""
    dispatcher.RECONCILE_S = 1.0
    wait, retry = dispatcher.Dispatcher._pause, connection.Redis._pause_before_retry

    def short_wait(self: dispatcher.Dispatcher, seconds: float) -> None:
        wait(self, seconds / SPEED_UP)

    def short_retry(self: connection.Redis, *arguments: Any) -> float | None:
        pause_s = retry(self, *arguments)
        return pause_s and pause_s / SPEED_UP

    dispatcher.Dispatcher._pause = short_wait  # type: ignore[method-assign]
    connection.Redis._pause_before_retry = short_retry  # type: ignore[method-assign]
