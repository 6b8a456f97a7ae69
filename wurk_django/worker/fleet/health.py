"""Which children hang, and which have grown too large (docs/spec/reliability.md §11.4, §11.6)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ...config import Options
from .lookout import Beats
from .slots import Child
from .system import System

log = logging.getLogger("wurk")

BOOT_ALLOWANCE_S = 30.0  # more for the first heartbeat
WEIGH_S = 10.0  # between looks at the memory
MIB = 1 << 20


class Health:
    """Belongs to the supervisor, which acts on what it finds."""

    def __init__(self, options: Options) -> None:
        # A child must be late by several beats, whatever the limit says.
        self._hung_after_s = max(options.hung_timeout, 3 * options.heartbeat_interval) if options.hung_timeout else None
        self._limit_bytes = options.maxmem_mb * MIB if options.maxmem_mb else None
        self._weigh_at = 0.0

    def hear(self, beats: Beats, children: Mapping[int, Child], now: float) -> None:
        """Note whose heart beats. While Redis cannot be asked nobody hangs: nobody can beat."""
        if beats.of is None:
            self.excuse(children.values(), now)
            return
        for pid, beat in beats.of.items():
            child = children.get(pid)
            if child is not None and beat is not None and beat != child.beat:
                child.beat, child.advanced_at = beat, now

    def excuse(self, children: Iterable[Child], now: float) -> None:
        """Count from here."""
        for child in children:
            child.advanced_at = now

    def hung(self, children: Iterable[Child], now: float) -> list[Child]:
        """Those whose heartbeat has stood still for too long."""
        if self._hung_after_s is None:
            return []
        found = []
        for child in children:
            allowed_s = self._hung_after_s + (BOOT_ALLOWANCE_S if child.beat is None else 0)
            if now - child.advanced_at > allowed_s:
                log.warning("child %d has not beaten for %.0f s; it hangs and is replaced", child.pid, allowed_s)
                found.append(child)
        return found

    def too_fat(self, children: Iterable[Child], system: System, now: float) -> list[Child]:
        """Those whose memory has reached the limit."""
        if self._limit_bytes is None or now < self._weigh_at:
            return []
        self._weigh_at = now + WEIGH_S
        found = []
        for child in children:
            size = system.resident_bytes(child.pid)
            if size is not None and size >= self._limit_bytes:
                log.warning("child %d holds %d MB of memory; it is replaced", child.pid, size // MIB)
                found.append(child)
        return found
