"""What this process holds, and how a job that it does not know it holds is found.

A claim whose answer was lost leaves its job in our private list, unknown to us (docs/spec/reliability.md §3.5). So
every claimed job is recorded here before a thread can start it, and erased after its acknowledgement was applied:
what is in a private list and not here is nobody's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from ..config import Options
from ..connection import Redis
from ..storage import queues
from ..storage.queues import Lane
from .work import Work

log = logging.getLogger("wurk")


class Holdings:
    """The claimed and unacknowledged jobs of one dispatcher."""

    def __init__(self) -> None:
        self._held: set[Work] = set()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, work: Work) -> None:
        """It was claimed; nothing has started it."""
        self._held.add(work)

    def discard(self, works: Iterable[Work]) -> None:
        """They were acknowledged, moved on or given back."""
        self._held.difference_update(works)

    def unaccounted(self, redis: Redis, lanes: Sequence[Lane]) -> list[Lane]:
        """The lanes whose private list is longer than what is held: a cheap look that reads no payload."""
        held = Counter(work.lane.name for work in list(self._held))
        counts = queues.held_counts(redis, lanes)
        return [lane for lane, count in zip(lanes, counts, strict=True) if count > held[lane.name]]

    def give_back_lost(self, redis: Redis, lane: Lane, options: Options) -> int:
        """Give back what the private list holds beyond what is held; no claim may be under way meanwhile."""
        listed = Counter(queues.held(redis, lane, options))
        listed.subtract(work.raw for work in list(self._held) if work.lane.name == lane.name)
        lost = [payload for payload, count in listed.items() for _ in range(count)]
        if not lost:
            return 0
        moved = queues.requeue(redis, [(lane, payload) for payload in lost])
        log.warning("%d jobs of %s were claimed with a lost answer; they are back on the queue", moved, lane.name)
        return moved
