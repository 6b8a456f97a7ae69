"""The places of a fleet and the children that fill them: plain state, changed by the supervisor alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...config import Config

FIRST_PAUSE_S = 1.0  # before a child that died is replaced; doubled with each death in a row
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # a child that lived so long ends the row


@dataclass(eq=False)
class Slot:
    """One place: what its child serves, and when it may be filled again."""

    number: int
    config: Config
    child: Child | None = None
    due_at: float | None = 0.0  # monotonic; None: nothing to fork
    deaths: int = 0  # in a row, for the pause
    failed_boots: int = 0  # in a row, before a first heartbeat
    finished: bool = False  # drained, in a burst

    def put_off(self, now: float, lived_s: float = 0.0) -> float:
        """A child has died, or could not be forked: when the next one may come. Returns the pause."""
        if lived_s >= STEADY_S:
            self.deaths = 0
        pause_s = min(FIRST_PAUSE_S * float(2**self.deaths), LONGEST_PAUSE_S)
        self.deaths = min(self.deaths + 1, 16)
        self.due_at = now + pause_s
        return pause_s

    def is_due(self, now: float) -> bool:
        """Wants a child now."""
        return self.child is None and not self.finished and self.due_at is not None and self.due_at <= now


@dataclass(eq=False)
class Child:
    """One process that we have forked and not yet reaped."""

    pid: int
    slot: Slot
    started_at: float
    beat: bytes | None = None  # the last one seen; None before the first
    advanced_at: float = field(default=0.0)  # when it was last seen to advance
    asked_to_end_at: float | None = None
    killed: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        self.advanced_at = self.started_at
