"""Is the owner of a private list dead? (docs/spec/reliability.md §5.3, 5.4)"""

from __future__ import annotations

import logging
import os

from ..clock import monotonic
from ..config import Config
from ..errors import RedisRefused
from ..storage import orphans, processes
from .owners import Owner

log = logging.getLogger("wurk")

MAX_REMEMBERED = 10_000  # lists judged by our own clock; forgetting them only delays


class Judge:
    """One for each pass of a reaper, which asks it in one thread: first `look`, then about every list that it finds."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._grace_s = config.options.reaper_grace
        self._first_judged: dict[str, float] = {}  # by our own clock, where the server cannot tell idle times
        self._server_tells_idle = True
        self._alive: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()
        self._hold_until: float | None = None

    def look(self) -> None:
        """Who is alive, as of now."""
        alive, lapsed = processes.snapshot(self._config.redis)
        lost = len(self._before & lapsed)  # who ends in order takes its name out of the set
        if self._hold_until is not None and monotonic() >= self._hold_until:
            self._hold_until = None
        elif self._hold_until is None and lost > 1 and lost * 2 > len(self._before):
            ttl_s = self._config.options.heartbeat_ttl
            log.warning(
                "%d of %d processes vanished at once: the clock of the server may have jumped; their jobs stay where"
                " they are for %.0f s more",
                lost, len(self._before), ttl_s,
            )  # fmt: skip
            self._hold_until = monotonic() + ttl_s
        self._alive = alive
        self._before = frozenset(name for name in alive if name.rpartition(":")[0] in alive)

    def is_orphaned(self, key: str, owner: Owner) -> bool:
        """May this list be drained? Of our own tree the kernel knows; elsewhere heartbeat and idle time decide."""
        if owner.is_of_our_tree:
            return not _pid_exists(owner.pid)
        if self._hold_until is not None or owner.identity in self._alive or self._touched_lately(key):
            return False
        # The snapshot is as old as the scan: look again right before.
        if owner.nonce:
            return not processes.is_alive(self._config.redis, owner.identity)
        return owner.identity not in processes.live_owners(self._config.redis)

    def _touched_lately(self, key: str) -> bool:
        if self._grace_s <= 0:
            return False
        if self._server_tells_idle:
            try:
                idle_s = orphans.idle_seconds(self._config.redis, key)
                return idle_s is None or idle_s < self._grace_s
            except RedisRefused as refusal:
                self._server_tells_idle = False
                log.warning("the server does not tell idle times (%s); dead processes are judged by our clock", refusal)
        return self._seen_lately(key)

    def _seen_lately(self, key: str) -> bool:
        """By our own clock: a list must look orphaned for the whole grace, over several sweeps."""
        first = self._first_judged.get(key)
        if first is None:
            if len(self._first_judged) >= MAX_REMEMBERED:
                self._first_judged.clear()
            self._first_judged[key] = monotonic()
            return True
        if monotonic() - first < self._grace_s:
            return True
        del self._first_judged[key]
        return False


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
