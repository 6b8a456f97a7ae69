"""What a supervisor asks of the operating system: fork, signal, reap, measure.

Only the process that made it may use it: children inherit the object, not the right.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ... import tied_process
from ..signals import SignalLoop

STRAY_LOOK_S = 2.0
STRAY_PATIENCE_S = 10.0  # a zombie that its starter has not asked for by then has nobody who will
UNKNOWN = -1  # the exit code of a child that somebody else has reaped


class System:
    """The children of this process."""

    def __init__(self, signals: SignalLoop) -> None:
        self._signals = signals
        self._owner = os.getpid()
        self._strays_at = 0.0
        self._strays: dict[int, float] = {}

    @property
    def pid(self) -> int:
        """The parent of the fleet."""
        return self._owner

    def warm_up(self) -> None:
        """Throw away what is garbage and keep the rest out of later collections, so that children share its pages."""
        gc.collect()
        gc.freeze()

    def fork(self, live: Callable[[], NoReturn]) -> int:
        """Start a child that runs `live`; returns its pid. Raises OSError.

        The signals of the loop are blocked until the child has handlers of its own: one that comes in between must
        neither end it nor be told to its parent.
        """
        self._check_owner()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # what is buffered would be written twice
                stream.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals.numbers)
        try:
            pid = os.fork()
            if pid == 0:
                live()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals.numbers)
        return pid

    def send(self, pid: int, signum: int) -> None:
        """Signal a child that was not reaped yet: its pid cannot be anybody else's."""
        self._check_owner()
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    def reap(self, pid: int) -> int | None:
        """The exit code of a child that has ended, minus the signal that ended it; None while it lives."""
        self._check_owner()
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return UNKNOWN
        return os.waitstatus_to_exitcode(status) if found else None

    def resident_bytes(self, pid: int) -> int | None:
        """The memory of a child, None where the system does not tell."""
        try:
            pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def reap_strays(self, known: frozenset[int]) -> list[int]:
        """As process 1, bury the orphans that the kernel gave us; returns their pids.

        Not the fleet's own, not the local Redis server, and not what the host has started: that one is asked for its
        exit code within a moment, and a stray is not.
        """
        self._check_owner()
        now = time.monotonic()
        if self._owner != 1 or now < self._strays_at:
            return []
        self._strays_at = now + STRAY_LOOK_S
        zombies = {pid for pid in _zombies_of(self._owner) if pid not in known and not tied_process.owns(pid)}
        self._strays = {pid: self._strays.get(pid, now) for pid in zombies}
        ripe = [pid for pid, seen_at in self._strays.items() if now - seen_at >= STRAY_PATIENCE_S]
        return [pid for pid in ripe if self.reap(pid) is not None]

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(f"the fleet belongs to process {self._owner}, not to {os.getpid()}")


def _zombies_of(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, owner = path.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(owner) == parent:
                yield int(path.parent.name)
