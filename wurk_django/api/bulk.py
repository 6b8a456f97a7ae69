"""One act on many entries of a set, in slices: now or in a thread, to be cancelled, and resumed after a crash.

It acts on the members that were there when it began: what came in later, and a job that fails again and comes back,
is left alone, so that it always ends. It walks by score and bytes, lowest first; each slice is one script, which
removes an entry before it acts on it, so each is handled once whatever else happens to the set meanwhile.
docs/spec/dashboard.md TB-43 to TB-47.
"""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from .. import config as configuration
from .. import keys, wire
from ..config import Config
from ..errors import InvalidJob
from ..storage import server, sorted_sets
from ..storage.sorted_sets import Member, Move
from . import deaths
from .entries import SortedEntry
from .rewriting import prepare_move

SLICE: Final = 250  # entries a script: some milliseconds of Redis
MAX_FAILURES: Final = 100  # that are kept with their reason

Act = Literal["retry", "enqueue", "kill", "delete"]
State = Literal["new", "running", "cancelled", "broken", "done"]


@dataclass(frozen=True)
class Progress:
    """How far a bulk operation is. `total` is what the set held when it began.

    `done` were acted on; `gone` had been moved by somebody else; `left` did not match, came in later or were stopped
    by a middleware; `failed` could not be acted on, the first of them with id and reason in `failures`.
    """

    state: State = "new"
    total: int = 0
    done: int = 0
    gone: int = 0
    left: int = 0
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()


@dataclass
class _Place:
    """Where a bulk operation stands, and what it was when it began."""

    began_s: float = 0.0  # by Redis TIME
    until: float = math.inf  # the highest score there was
    score: float = -math.inf
    member: bytes | None = None


@dataclass
class Bulk:
    """`run` works it off and returns; `start` does so in a thread of its own. One thread at a time.

    `where` chooses entries; without it all are meant. `notify_failure` and `ex` are for kills. After an error of
    Redis another `run` goes on.
    """

    set_name: str
    act: Act
    config: Config = field(default_factory=configuration.default)
    where: Callable[[SortedEntry], bool] | None = None
    notify_failure: bool = False
    ex: BaseException | None = None
    progress: Progress = field(default_factory=Progress, init=False)
    error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.act not in get_args(Act):
            raise ValueError(f"{self.act!r} is no act; there are {', '.join(get_args(Act))}")
        self._place = _Place()
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    def run(self) -> Progress:
        """Go on until everything is handled or it is cancelled. Raises what Redis raises; then run it again."""
        self._set(state="running")
        try:
            try:
                while not self._cancelled.is_set() and self.step():
                    pass
            finally:
                self._trim()
        except BaseException:
            self._set(state="broken")
            raise
        self._set(state="cancelled" if self._cancelled.is_set() and self._has_more() else "done")
        return self.progress

    def start(self) -> Bulk:
        """Run in a thread, which does not keep the program from ending. An error is in `error`."""
        self._thread = threading.Thread(
            target=self._run_in_thread, name=f"bulk {self.act} {self.set_name}", daemon=True
        )
        self._thread.start()
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread; False when it is still running."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def cancel(self) -> None:
        """Stop after the slice at hand. What was done stays done."""
        self._cancelled.set()

    def saved(self) -> dict[str, Any]:
        """Everything that `resume` needs, as JSON values. It may be older than a crash: nothing is done twice."""
        place = self._place
        return {
            "set": self.set_name,
            "act": self.act,
            "began_s": place.began_s,
            "until": repr(place.until),
            "score": repr(place.score),
            "member": None if place.member is None else base64.b64encode(place.member).decode(),
            "progress": asdict(self.progress),
        }

    @classmethod
    def resume(cls, saved: Mapping[str, Any], config: Config | None = None, **options: Any) -> Bulk:
        """A bulk operation as it was when it was saved, to be run. `where` and the like are given anew."""
        bulk = cls(saved["set"], saved["act"], config or configuration.default(), **options)
        member = None if saved["member"] is None else base64.b64decode(saved["member"])
        bulk._place = _Place(saved["began_s"], float(saved["until"]), float(saved["score"]), member)
        failures = tuple((key, reason) for key, reason in saved["progress"]["failures"])
        bulk.progress = Progress(**{**saved["progress"], "failures": failures})
        return bulk

    # --- work -----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Handle one slice. False: nothing is left to handle."""
        if not self._place.began_s:
            self._begin()
        members = self._next() if self._has_more() else []
        if not members:
            return False
        entries = [SortedEntry(member, self.set_name, self.config) for member in members]
        meant = [entry for entry in entries if self._is_meant(entry)]
        self._set(left=self.progress.left + len(entries) - len(meant))
        if self.act == "delete":
            deleted = (
                sorted_sets.remove(self.config.redis, self.set_name, [entry.value for entry in meant]) if meant else 0
            )
            self._set(done=self.progress.done + deleted, gone=self.progress.gone + len(meant) - deleted)
        elif self.act == "kill":
            self._kill(meant)
        else:
            self._enqueue(meant)
        self._place.member, self._place.score = members[-1]
        return True

    def _begin(self) -> None:
        total, last = sorted_sets.ranked(self.config.redis, self.set_name, 0, 1, newest_first=True)
        until = last[0].score if last else -math.inf
        self._place = _Place(server.now_s(self.config.redis), until)
        self._set(total=total)

    def _next(self) -> list[Member]:
        place = self._place
        found = sorted_sets.following(self.config.redis, self.set_name, place.score, place.member, count=SLICE)
        return [member for member in found if member.score <= place.until]

    def _has_more(self) -> bool:
        return self.progress.done < self.progress.total

    def _is_meant(self, entry: SortedEntry) -> bool:
        came_s = self._came_s(entry)
        return (came_s is None or came_s <= self._place.began_s) and (self.where is None or self.where(entry))

    def _came_s(self, entry: SortedEntry) -> float | None:
        """When it came into the set, as far as it tells."""
        if self.set_name == keys.DEAD:
            return entry.score
        if self.set_name == keys.RETRY:
            return wire.read_time(entry["retried_at"]) or wire.read_time(entry["failed_at"])
        return wire.read_time(entry["created_at"])

    def _kill(self, entries: Sequence[SortedEntry]) -> None:
        if not entries:
            return
        raws = [entry.value for entry in entries]
        moved = sorted_sets.move_to_dead(self.config.redis, self.set_name, raws, self.config.options, trim=False)
        self._set(done=self.progress.done + sum(moved), gone=self.progress.gone + len(moved) - sum(moved))
        if self.notify_failure:
            for raw, was_there in zip(raws, moved, strict=True):
                if was_there:
                    deaths.tell(self.config, raw, self.ex)

    def _trim(self) -> None:
        if self.act == "kill":
            options = self.config.options
            sorted_sets.trim_backlog(self.config.redis, options.dead_max_jobs, options.dead_timeout_in_seconds)

    def _enqueue(self, entries: Sequence[SortedEntry]) -> None:
        moves: list[tuple[SortedEntry, Move]] = []
        for entry in entries:
            try:
                move = prepare_move(entry.value, self.config, spare_attempt=self.act == "retry")
            except Exception as error:  # no job, or a broken middleware: the others go on
                self._fail(entry, str(error) if isinstance(error, InvalidJob) else repr(error))
                continue
            if move is None:
                self._set(left=self.progress.left + 1)
            else:
                moves.append((entry, move))
        if not moves:
            return
        moved = sorted_sets.move_to_queues(self.config.redis, self.set_name, [move for _, move in moves])
        self._set(done=self.progress.done + moved.count(1), gone=self.progress.gone + moved.count(0))
        for (entry, move), outcome in zip(moves, moved, strict=True):
            if outcome < 0:
                self._fail(entry, f"the key of the queue {move.queue!r} holds no list")

    def _fail(self, entry: SortedEntry, reason: str) -> None:
        failures = (*self.progress.failures, (entry.id, reason[:300]))[:MAX_FAILURES]
        self._set(failed=self.progress.failed + 1, failures=failures)

    def _set(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)  # replaced, never changed: others read it meanwhile

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except Exception as error:  # nobody stands above this thread: whoever asks finds it in `error`
            self.error = error
            self.config.report(error, f"bulk {self.act} of {self.set_name}")
