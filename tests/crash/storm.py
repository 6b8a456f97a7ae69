"""A run of many jobs in which the worker is killed again and again at one named point, and the account of it.

The account is exact. When a worker has died, what it had started and what Redis still holds for it say which attempts
must run once more; every other attempt must be started exactly once.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.crash.harness import RECOVERY_S, Place, Stage
from tests.crash.ledger import Attempt, Entry
from tests.support.processes import WorkerProcess

DEATH_S = 30.0  # from the start of a worker until the kill that is meant for it


@dataclass(frozen=True)
class Death:
    """What a dead worker left: each attempt that it had started and that must run again, and where Redis holds it."""

    pid: int
    places: Mapping[str, Place]  # by jid, every job that Redis holds
    again: Collection[Attempt]  # started here and not booked; in a private list, or back on the queue
    last: Mapping[str, Entry]  # by jid, the last line that it wrote about a job

    def left(self, event: str | None, where: str) -> list[str]:
        """The jobs whose last line is this event (None: not started) and that stand at "private" or a key."""
        return [
            jid
            for jid, place in self.places.items()
            if (f"|{self.pid}|" in place.key if where == "private" else place.key == where)
            and (self.last[jid].event if jid in self.last else None) == event
        ]

    def sums(self) -> dict[tuple[str | None, str], int]:
        """How many jobs it left with each last line at each place."""
        return dict(
            Counter(
                (self.last[jid].event if jid in self.last else None, place.key) for jid, place in self.places.items()
            )
        )


@dataclass
class Storm:
    """`start` makes a worker. A kill is what sees to it that a worker dies at the point, and what it must leave then:
    an event and a place, as `Death.left` takes them."""

    stage: Stage
    jids: Sequence[str]
    start: Callable[[], WorkerProcess]
    deaths: list[Death] = field(default_factory=list)
    recovery_s: float = 0.0

    def run(self, kills: Iterable[tuple[Callable[[WorkerProcess], object], str | None, str]]) -> None:
        for number, (arm, event, where) in enumerate(kills):
            worker = self.start()
            arm(worker)
            code = worker.wait(DEATH_S)
            assert code == -signal.SIGKILL, f"life {number} ended with {code}:\n{worker.output}"
            self.stage.settle()
            death = self._account(worker.pid)
            self.deaths.append(death)
            assert death.left(event, where), f"life {number} left no {event} at {where}, but {death.sums()}"
        self.stage.proxy.clear()
        self.stage.open_gate("calm")
        last = self.start()
        self.stage.wait_until_done(self.jids)
        self.recovery_s = time.monotonic() - last.started_at
        assert self.recovery_s <= RECOVERY_S
        last.send(signal.SIGTERM)
        assert last.wait() == 0
        self.check_starts()
        self.stage.check_keys()
        print(
            f"{len(self.deaths)} kills, {self.repeats} runs repeated, all done {self.recovery_s:.1f} s after the last"
        )

    def check_starts(self) -> None:
        """Every attempt was started once, and once more for each death that left it started and unbooked."""
        excused = Counter(attempt for death in self.deaths for attempt in death.again)
        wrong = {attempt: n for attempt, n in self.stage.ledger.starts().items() if n != 1 + excused[attempt]}
        assert not wrong, f"starts that no death explains, or missing ones: {wrong}"

    @property
    def repeats(self) -> int:
        return sum(len(death.again) for death in self.deaths)

    def _account(self, pid: int) -> Death:
        places = self.stage.check_balance(self.jids)
        last = {entry.jid: entry for entry in self.stage.ledger.entries(pid=pid)}
        started = {(entry.jid, entry.attempt) for entry in self.stage.ledger.entries("start", pid=pid)}
        held = {jid: found[0] for jid, found in places.items()}
        again = [
            (jid, place.attempt)
            for jid, place in held.items()
            if (jid, place.attempt) in started and place.key.startswith("queue:")
        ]
        return Death(pid, held, again, last)
