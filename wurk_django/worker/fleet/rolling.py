"""The rolling restart: one child after the other is replaced, and no old one ends before its replacement has beaten.

A state machine without a clock and without processes of its own: the supervisor calls `advance` with each of its
ticks and `child_ended` for each death (docs/spec/reliability.md §11.5).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from .slots import Child, Slot

log = logging.getLogger("wurk")

BEAT_TIMEOUT_S = 30.0  # for the first heartbeat of a replacement; then the old one ends all the same


class Fleet(Protocol):
    """What the restart asks of its supervisor."""

    def fork(self, slot: Slot, now: float) -> Child | None:
        """Start a child of this slot; None when that is not possible now (the slot then has its pause)."""

    def end(self, child: Child, now: float) -> None:
        """Ask a child to stop; it is killed when it takes too long."""


class Rolling:
    """Made by the supervisor, one for its life."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._waiting: deque[Child] = deque()
        self._old: Child | None = None
        self._new: Child | None = None  # until it has taken over

    @property
    def active(self) -> bool:
        """A restart is under way."""
        return self._old is not None or bool(self._waiting)

    def add(self, children: Iterable[Child]) -> None:
        """Replace these, too. One that waits or is being replaced is not taken twice."""
        for child in children:
            if child not in self._waiting and child is not self._old and child is not self._new:
                self._waiting.append(child)

    def abort(self) -> None:
        """Forget what is left to do: the fleet stops."""
        self._waiting.clear()
        self._old = self._new = None

    def advance(self, now: float) -> None:
        """Take the next step, if its time has come."""
        if self._old is None:
            self._begin(now)
        elif self._new is not None and self._may_take_over(self._new, now):
            self._take_over()
            self._fleet.end(self._old, now)

    def child_ended(self, child: Child, now: float) -> bool:
        """A child has died. True when that is all part of the restart, and its slot needs no other child."""
        if child is self._new:
            return self._replacement_failed(child, now)
        if child is not self._old:
            return False
        if self._new is not None:  # it died before its time
            self._take_over()
        self._old = None
        child.slot.due_at = None
        child.slot.deaths = 0
        return True

    def _begin(self, now: float) -> None:
        if not self._waiting:
            return
        old = self._waiting[0]
        if old.ended:
            self._waiting.popleft()
            return
        if old.slot.due_at is not None and old.slot.due_at > now:  # after a replacement that failed
            return
        new = self._fleet.fork(old.slot, now)
        if new is None:
            return
        self._waiting.popleft()
        self._old, self._new = old, new
        log.info("restart: child %d comes for child %d", new.pid, old.pid)

    def _may_take_over(self, new: Child, now: float) -> bool:
        if new.beat is not None:
            return True
        if now - new.started_at < BEAT_TIMEOUT_S:
            return False
        log.warning("restart: no heartbeat of child %d for %g s; it takes over all the same", new.pid, BEAT_TIMEOUT_S)
        return True

    def _take_over(self) -> None:
        assert self._new is not None
        self._new.slot.child = self._new
        self._new = None

    def _replacement_failed(self, new: Child, now: float) -> bool:
        """The old child goes on, and a next replacement is tried after a pause."""
        assert self._old is not None
        self._waiting.appendleft(self._old)
        self._old = self._new = None
        pause_s = new.slot.put_off(now, now - new.started_at)
        log.warning("restart: child %d ended before its first heartbeat; the next one in %g s", new.pid, pause_s)
        return True
