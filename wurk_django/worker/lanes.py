"""In which order a pass looks at the queues of a capsule, and which it leaves out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from ..clock import monotonic
from ..config import Capsule
from ..storage import queues
from ..storage.queues import Lane
from . import identity

PAUSED_CACHE_S = 2.0
QUARANTINE_S = 5.0  # a queue whose key has a wrong type is left alone for so long


class Lanes:
    """The queues of a capsule as this process sees them. Belongs to a dispatcher; its caches are swapped as a whole.

    Private lists carry the pid: after a fork a new one must be made.
    """

    def __init__(self, capsule: Capsule, index: int) -> None:
        self._capsule = capsule
        self._lanes = {
            name: Lane(name, queues.public_key(name), identity.private_list(name, index))
            for name in capsule.queues.names
        }
        self._paused: frozenset[str] = frozenset()
        self._paused_at = -PAUSED_CACHE_S
        self._generation = -1
        self._quarantine: dict[str, float] = {}

    def all(self) -> list[Lane]:
        """Every queue of the capsule, as declared."""
        return list(self._lanes.values())

    def in_order(self) -> list[Lane]:
        """The queues of the next pass: shuffled by weight unless strict, without the paused ones."""
        lanes = [self._lanes[name] for name in self._capsule.fetch_order()]
        self._refresh_paused()
        if self._paused:
            lanes = [lane for lane in lanes if lane.name not in self._paused]
        if self._quarantine:
            now = monotonic()
            self._quarantine = {name: until for name, until in self._quarantine.items() if until > now}
            lanes = [lane for lane in lanes if lane.name not in self._quarantine]
        return lanes

    def first_share(self, lanes: Sequence[Lane], count: int) -> tuple[list[Lane], list[int]]:
        """Whom a pass asks first, and for how many jobs each. By weight, each job draws its queue as a lone thread
        would, so that a pass for many threads does not turn weights into bursts."""
        if self._capsule.queues.mode == "strict" or count == 1 or len(lanes) == 1:
            return list(lanes[:1]), [count]
        names = {lane.name for lane in lanes}
        weighted = [name for name in self._capsule.queues.expanded if name in names]
        drawn = Counter(random.choices(weighted, k=count))  # noqa: S311
        first = [lane for lane in lanes if drawn[lane.name]]
        return first, [drawn[lane.name] for lane in first]

    def rest(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Whom a pass asks when the first share brought too little."""
        if len(lanes) < 2:
            return []
        return list(lanes[1:] if self._capsule.queues.mode == "strict" else lanes)

    def put_aside(self, lane: Lane) -> None:
        """Leave a queue out for a while: its key cannot be used."""
        self._quarantine = {**self._quarantine, lane.name: monotonic() + QUARANTINE_S}

    @property
    def some_put_aside(self) -> bool:
        """Is a queue left out because its key cannot be used?"""
        return bool(self._quarantine)

    def _refresh_paused(self) -> None:
        now = monotonic()
        generation = queues.pause_generation()
        if generation == self._generation and now - self._paused_at < PAUSED_CACHE_S:
            return
        self._paused = queues.paused(self._capsule.claims)  # the value first, then what says that it is fresh
        self._paused_at = now
        self._generation = generation
