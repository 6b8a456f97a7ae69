"""Brings back the jobs of processes that died.

A private list names its owner. When the owner has no heartbeat and nobody touched the list for a while, its jobs go
back to the consuming end of their queue, in slices, each slice with the proof of death in the same script
(docs/spec/reliability.md §5). Who notices first brings them back: the parent of a dead child at once, another process
when the heartbeat has lapsed (watch), a sweep over the lists of the served queues, an hourly one over all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from .. import keys
from ..clock import monotonic
from ..component import JOIN_TIMEOUT_S, Periodic
from ..config import Config
from ..connection import Redis
from ..storage import orphans, processes
from .owners import Owner, lists_of, lists_of_child, read_any_owner, read_owner
from .recovery import Recovery
from .verdict import Judge

log = logging.getLogger("wurk")

CALM = 19  # a sweep rests so many times as long as each of its looks took: 5 % of the server's time
MAX_REST_S = 0.02  # what a look takes beyond 1 ms is the network's time
MAX_UNREADABLE = 1000  # keys that were reported
MAX_WATCHED = 1000  # processes that vanished and whose lists are looked at


def reclaim_child(config: Config, redis: Redis, pid: int) -> int:
    """Bring back the jobs of a dead process of our tree with this configuration; returns how many.

    Called by the parent that has reaped it: that is the proof. What may be poison is left to a sweep.
    """
    recovery = Recovery(config, redis)
    return sum(recovery.bring_back(key, owner, bury=False) for key, owner in lists_of_child(config, pid))


class Reaper:
    """A Component: one sweep in the background at start, then the passes that the fleet shares by locks in Redis."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._options = config.options
        self._boot: threading.Thread | None = None
        self._loop = Periodic("reaper", self._tick, lambda: config.options.reaper_interval, config.report)
        self._watching = Periodic("reaper-watch", self._watch, self._watch_interval, config.report)
        self._recovery = Recovery(config, stopping=lambda: self._loop.stopping)
        self._judge = Judge(config)
        self._watch_judge = Judge(config)
        self._known: dict[str, list[tuple[str, Owner]]] = {}
        self._vanished: dict[str, tuple[float, list[tuple[str, Owner]]]] = {}  # until when, and their lists
        self._unreadable: set[str] = set()

    def start(self) -> None:
        self._loop.start()
        self._watching.start()
        if self._boot is None or not self._boot.is_alive():
            self._boot = threading.Thread(target=self._boot_sweep, name="wurk-reaper-boot", daemon=True)
            self._boot.start()

    def quiet(self) -> None:
        """Go on: a quiet process can still help the fleet."""

    def stop(self) -> None:
        """End the loops; a sweep that is under way ends at its next step and is not waited for beyond the timeout."""
        self._loop.stop(JOIN_TIMEOUT_S / 2)
        self._watching.stop(JOIN_TIMEOUT_S / 2)

    def sweep(self, judge: Judge | None = None) -> int:
        """Look at the private lists of the queues that this process serves; returns how many jobs came back."""
        return self._sweep(judge or self._judge, self._owner_among_ours)

    def sweep_all(self) -> int:
        """Look at every private list there is, those of queues that nobody serves any more among them."""
        return self._sweep(self._judge, read_any_owner)

    def _sweep(self, judge: Judge, read: Callable[[str], Owner | None]) -> int:
        judge.look()
        found = orphans.private_lists(self._config.redis, self._rest)
        return self._drain_orphans(((key, read(key)) for key in found if self._is_readable(key)), judge)

    # --- the passes -----------------------------------------------------------------------------------------------

    def _tick(self) -> int:
        names, redis = self._config.queue_names(), self._config.redis
        moved = 0
        if orphans.take_sweep_lock(redis, names, self._options.reaper_interval):
            moved += self.sweep()
        if orphans.take_lock(redis, keys.REAPER_FULL, self._options.reaper_full_interval):
            moved += self.sweep_all()
        return moved

    def _boot_sweep(self) -> None:
        try:
            if self._may_sweep_at_boot():
                self.sweep(Judge(self._config))
        except Exception as error:  # the edge of a thread; the next sweep comes
            self._config.report(error, "reaper")

    def _may_sweep_at_boot(self) -> bool:
        """Once the lock is free. Who loses it then is served: another has begun to sweep after this one's start."""
        names, redis = self._config.queue_names(), self._config.redis
        if orphans.take_boot_lock(redis, names):
            return True
        self._loop.sleep(orphans.BOOT_LOCK_S)
        return not self._loop.stopping and orphans.take_boot_lock(redis, names)

    def _watch(self) -> int:
        """Has a process lost its heartbeat since the last look? Then its lists have names that need no search."""
        # A little less than the interval: the lock must have lapsed when the one who holds it looks again.
        if not orphans.take_lock(self._config.redis, keys.REAPER_WATCH, self._watch_interval() * 0.9):
            return 0
        alive = {process.identity: process for process in processes.all_processes(self._config.redis)}
        now = monotonic()
        # Twice: when most have vanished at once, everything stays for one more time to live.
        until = now + self._options.reaper_grace + 2 * self._options.heartbeat_ttl
        for identity in self._known.keys() - alive.keys():
            if len(self._vanished) < MAX_WATCHED:
                self._vanished[identity] = (until, self._known[identity])
        self._known = {identity: lists_of(process) for identity, process in alive.items()}
        self._vanished = {
            identity: (ends, lists)
            for identity, (ends, lists) in self._vanished.items()
            if ends > now and identity not in alive
        }
        self._watch_judge.look()
        return self._drain_orphans(
            [(key, owner) for _, lists in self._vanished.values() for key, owner in lists], self._watch_judge
        )

    def _watch_interval(self) -> float:
        """Often enough to have seen a process alive before its heartbeat lapses."""
        return min(self._options.reaper_watch_interval, self._options.heartbeat_ttl / 3)

    def _rest(self, took_s: float) -> bool:
        """Between two looks of a search; True when it must end."""
        self._loop.sleep(min(took_s * CALM, MAX_REST_S))
        return self._loop.stopping

    # --- what a pass does -----------------------------------------------------------------------------------------

    def _drain_orphans(self, lists: Iterable[tuple[str, Owner | None]], judge: Judge) -> int:
        moved = 0
        for key, owner in lists:
            if self._loop.stopping:
                break
            if owner is not None and judge.is_orphaned(key, owner):
                moved += self._recovery.bring_back(key, owner)
        return moved

    def _owner_among_ours(self, key: str) -> Owner | None:
        """The owner of a private list of a queue that this process serves."""
        owners = (read_owner(key, name) for name in self._config.queue_names())
        return next((owner for owner in owners if owner is not None), None)

    def _is_readable(self, key: str) -> bool:
        """Is it a private list by its name? What is not is told once."""
        if read_any_owner(key) is not None:
            return True
        self._tell_unreadable(key)
        return False

    def _tell_unreadable(self, key: str) -> None:
        if key in self._unreadable:
            return
        try:
            is_queue, length = orphans.describe_unreadable(self._config.redis, key)
        except Exception as error:  # telling must not stop the sweep
            self._config.report(error, "reaper")
            return
        if len(self._unreadable) >= MAX_UNREADABLE:
            self._unreadable.clear()
        self._unreadable.add(key)
        if not is_queue:
            log.warning(
                "the list %.300r looks like a private list of %d jobs, but its owner cannot be read: nothing will"
                " bring them back by itself. Look at it, and move them by hand",
                key, length,
            )  # fmt: skip
