"""A claimed job on its way through this process."""

from __future__ import annotations

from enum import Enum
from itertools import count

from ..keys import RECOVERED_PREFIX
from ..storage.queues import Ack, Lane

_numbers = count()


class Work:
    """One claimed job: where it came from and the exact bytes. Made by the dispatcher, passed to one thread."""

    __slots__ = ("claimed_at", "jid", "lane", "number", "raw")

    def __init__(self, lane: Lane, raw: bytes, claimed_at: float) -> None:
        self.lane = lane
        self.raw = raw
        self.claimed_at = claimed_at  # monotonic seconds
        self.number = next(_numbers)  # in the order of the claims, also within one call
        self.jid = ""  # known once the payload is parsed

    @property
    def counter(self) -> str:
        """The key of its recovery counter."""
        return RECOVERED_PREFIX + self.jid

    def ack(self) -> Ack:
        """What removes it from Redis."""
        return Ack(self.lane.private, RECOVERED_PREFIX + self.jid, self.raw)


class Outcome(Enum):
    """What is to happen to a job that was run."""

    ACKNOWLEDGE = "done, or handled elsewhere: remove it from the private list"
    BOOKED = "a script has moved it on already"
    KEEP = "leave it in the private list: nothing could be booked"
