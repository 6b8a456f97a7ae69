"""Moves due jobs from `retry` and `schedule` to their queues.

Every process has one; there is no leader. The promotion is one script, so pollers do not disturb each other
(docs/spec/reliability.md §7, docs/spec/core.md §4).
"""

from __future__ import annotations

import logging
import random

from .. import keys
from ..clock import monotonic
from ..component import Periodic
from ..config import Config
from ..errors import RedisRefused, RedisUnavailable
from ..storage import processes, sorted_sets

log = logging.getLogger("wurk")

FIRST_WAIT_S = 10.0
FIRST_SPREAD_S = 5.0
COUNT_CACHE_S = 10.0  # how long the number of processes is believed
CROWD = 10  # from so many processes on, a wait is spread over the whole of its double
FALLBACK_WAIT_S = 5.0
STUCK_REPORT_S = 60.0


class Scheduler:
    """The poller. A Component: made by the launcher, runs in its own thread, ended by quiet or stop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._options = config.options
        self._count = (1, -COUNT_CACHE_S)
        self._stuck_reported_at = -STUCK_REPORT_S
        self._loop = Periodic("scheduler", self.enqueue_due, self.wait_s, config.report, first_wait=self.first_wait_s)

    def start(self) -> None:
        self._loop.start()

    def quiet(self) -> None:
        self._loop.stop()

    def stop(self) -> None:
        self._loop.stop()

    def enqueue_due(self) -> int:
        """Promote everything that is due in both sets; returns how many jobs were handled."""
        return sum(self._drain(set_name) for set_name in (keys.RETRY, keys.SCHEDULE))

    def first_wait_s(self) -> float:
        """Seconds before the first pass: spread, so that a fleet that starts at once does not poll at once."""
        given = self._options.scheduler_initial_wait
        base = FIRST_WAIT_S if self._options.poll_interval_average is None else 0.0
        return given if given is not None else base + random.random() * FIRST_SPREAD_S  # noqa: S311

    def wait_s(self) -> float:
        """Seconds before the next pass: the fleet as a whole polls every `poll_interval` seconds."""
        try:
            processes_alive = self._process_count()
        except (RedisUnavailable, RedisRefused) as error:
            log.debug("the scheduler cannot count processes: %s", error)
            return FALLBACK_WAIT_S
        average = self._options.poll_interval_average or processes_alive * self._options.poll_interval
        chance = random.random()  # noqa: S311  # spread, not secrecy
        return average * (0.5 + chance) if processes_alive < CROWD else average * 2 * chance

    def _process_count(self) -> int:
        count, read_at = self._count
        if monotonic() - read_at >= COUNT_CACHE_S:
            count = max(processes.count(self._config.redis), 1)
            self._count = (count, monotonic())
        return count

    def _drain(self, set_name: str) -> int:
        total, skip = 0, 0
        try:
            while not self._loop.stopping:
                done = sorted_sets.promote_due(self._config.redis, set_name, self._options, skip=skip)
                total += done.handled
                skip += done.stuck
                if done.stuck:
                    self._tell_stuck(set_name, done)
                if not done.more:
                    break
        except (RedisUnavailable, RedisRefused) as error:
            self._config.report(error, f"promoting due jobs of {set_name}")  # the other set has its turn all the same
        return total

    def _tell_stuck(self, set_name: str, done: sorted_sets.Promoted) -> None:
        if monotonic() - self._stuck_reported_at < STUCK_REPORT_S:
            return
        self._stuck_reported_at = monotonic()
        error = RedisRefused(f"{done.blocked_by} has a wrong type; due jobs of {set_name} wait for it", "WRONGTYPE")
        self._config.report(error, "promoting due jobs")
