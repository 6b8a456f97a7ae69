"""What a probe learns about this process: is it alive, is it ready, what are its numbers.

Alive is judged without Redis: whoever restarts a worker because Redis is away only adds to the trouble. What Redis is
asked is asked once a second at most, whoever wants to know (docs/spec/reliability.md §12).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..clock import monotonic, now_s
from ..config import Config
from ..connection import Redis
from ..errors import RedisRefused, RedisUnavailable
from ..storage import processes, queues, sorted_sets, stats
from . import identity
from .busy import Busy
from .exposition import MAX_QUEUES, Fleet, Own, render
from .heartbeat import Heartbeat, rss_kb

T = TypeVar("T")

REDIS_TIMEOUT_S = 1.0  # to connect, and for each answer: probes give up soon
KEPT_S = 1.0  # an answer of Redis serves all who ask meanwhile


@dataclass(frozen=True)
class Verdict:
    """The answer to a probe. No reason: all is well."""

    check: str
    reason: str = ""

    @property
    def good(self) -> bool:
        return not self.reason


class Vitals:
    """Made by the launcher; the main loop ticks it, the threads of the health listener ask it."""

    def __init__(self, config: Config, busy: Busy, heartbeat: Heartbeat) -> None:
        self._config = config
        self._options = config.options
        self._busy = busy
        self._heartbeat = heartbeat
        self._quiet = False
        self._ticked_at = math.inf  # no main loop of ours: in a host's process
        self._redis: Redis | None = None
        self._mutex = threading.Lock()
        self._fleet = _Kept(lambda: _read_fleet(self._pool()))
        self._tree = _Kept(self._read_tree)

    def tick(self) -> None:
        """The main loop goes round."""
        self._ticked_at = monotonic()

    def quiet(self) -> None:
        """This process takes no more jobs: it is on its way out."""
        self._quiet = True

    def close(self) -> None:
        """Drop the connections of the probes."""
        with self._mutex:
            redis, self._redis = self._redis, None
        if redis is not None:
            redis.close()

    def live(self) -> Verdict:
        """Should this process go on?"""
        if self._quiet:
            return Verdict("live", "stopping")
        if monotonic() - self._ticked_at >= self._options.wedged_after:
            return Verdict("live", "wedged")
        return Verdict("live")

    def ready(self) -> Verdict:
        """Does it do its work? In a fleet: do enough of its processes?"""
        try:
            tree = self._tree.get()
        except RedisUnavailable:
            return Verdict("ready", "redis unreachable")
        except RedisRefused as refusal:
            return Verdict("ready", f"redis refuses: {refusal.code}")
        if self._config.fleet_size == 1:
            late = self._heartbeat.age_s >= self._options.ready_window
            return Verdict("ready", "heartbeat stale" if late else "")
        fresh = self._count_fresh(tree)
        needed = self._options.min_ready or math.ceil(self._config.fleet_size / 2)
        missing = f"heartbeat stale: {fresh} of {self._config.fleet_size} processes are fresh, {needed} must be"
        return Verdict("ready", missing if fresh < needed else "")

    def metrics(self) -> str:
        """All numbers as Prometheus reads them; those of this process alone while Redis is away."""
        try:
            fleet = self._fleet.get()
        except (RedisUnavailable, RedisRefused):
            return render(None, [self._own()], self._config.fleet_size, None)
        tree = [process for process in fleet.processes if _is_ours(process)]
        others = [_told(process) for process in tree if process.identity != identity.identity()]
        return render(fleet, [self._own(), *others], self._config.fleet_size, self._count_fresh(tree))

    def _read_tree(self) -> list[processes.Process]:
        """The processes under our parent that have a heartbeat; only asks whether Redis answers when there is none."""
        redis = self._pool()
        processes.measure_rtt_us(redis)
        if self._config.fleet_size == 1:
            return []
        return [process for process in processes.all_processes(redis) if _is_ours(process)]

    def _count_fresh(self, tree: list[processes.Process]) -> int:
        now = now_s()
        return sum(now - process.beat < self._options.ready_window for process in tree)

    def _own(self) -> Own:
        return Own(
            os.getpid(),
            len(self._busy),
            self._config.total_concurrency,
            rss_kb() * 1024,
            self._heartbeat.age_s,
            self._quiet,
        )

    def _pool(self) -> Redis:
        """One that gives up at once, and that no job can exhaust."""
        with self._mutex:
            if self._redis is None:
                quick = replace(
                    self._config.redis_options, connect_timeout_s=REDIS_TIMEOUT_S, read_timeout_s=REDIS_TIMEOUT_S
                )
                self._redis = Redis(quick, 2, "health", attempts=1)
            return self._redis


class _Kept(Generic[T]):
    """An answer of Redis, or its absence, for everybody who asks within a second."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._mutex = threading.Lock()
        self._answer: T | RedisUnavailable | RedisRefused | None = None
        self._until = -math.inf

    def get(self) -> T:
        """Raises RedisUnavailable or RedisRefused."""
        with self._mutex:
            if self._answer is None or monotonic() >= self._until:
                try:
                    self._answer = self._read()
                except (RedisUnavailable, RedisRefused) as error:
                    self._answer = error
                self._until = monotonic() + KEPT_S
            if isinstance(self._answer, RedisUnavailable | RedisRefused):
                raise self._answer
            return self._answer


def _read_fleet(redis: Redis) -> Fleet:
    processed, failed = stats.totals(redis)
    return Fleet(
        processed,
        failed,
        sorted_sets.sizes(redis),
        queues.summaries(redis, MAX_QUEUES),
        processes.all_processes(redis),
    )


def _is_ours(process: processes.Process) -> bool:
    """Has it the same parent as this process?"""
    return process.identity.rsplit(":", 2)[::2] == [identity.host(), identity.NONCE]


def _told(process: processes.Process) -> Own:
    pid = int(process.identity.split(":")[-2])
    age_s = max(now_s() - process.beat, 0.0)
    return Own(pid, process.busy, process.concurrency, process.rss_kb * 1024, age_s, process.quiet)
