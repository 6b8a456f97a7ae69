"""The sets `schedule`, `retry` and `dead`. Wire: docs/spec/core.md §6.3, §7."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .. import clock, keys, wire
from .. import config as configuration
from ..config import Config
from ..storage import sorted_sets
from . import deaths
from .bulk import Act, Bulk, Progress
from .entries import SortedEntry

PAGE = 50  # entries that an iteration reads at a time
SCAN_COUNT = 1000  # entries that Redis looks at in one step of a search
SEARCH_ENTRIES = 10_000  # that one search looks at, unless it is told otherwise
SEARCH_S = 0.25  # that one search takes, unless it is told otherwise


class Found(NamedTuple):
    """What a search found. `cursor` goes on from where it stopped; 0 when it has looked at everything."""

    entries: list[SortedEntry]
    cursor: int
    looked_at: int


class JobSet:
    """A sorted set of jobs. Holds no state: everything is read when it is asked for."""

    def __init__(self, name: str, config: Config | None = None) -> None:
        self.name = name
        self.config = config or configuration.default()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def size(self) -> int:
        return sorted_sets.size(self.config.redis, self.name)

    def __iter__(self) -> Iterator[SortedEntry]:
        """Every entry, the highest score first. What stays is met once, whatever comes and goes meanwhile."""
        return self._walk(math.inf, up=False)

    def page(
        self, number: int = 1, size: int = 25, *, newest_first: bool = False
    ) -> tuple[int, int, list[SortedEntry]]:
        """One page for people: its number (from 1), how many entries there are, and the page's."""
        number = max(number, 1)
        total, members = sorted_sets.ranked(
            self.config.redis, self.name, (number - 1) * size, size, newest_first=newest_first
        )
        return number if total else 1, total, [self._entry(member) for member in members]

    def after(self, score: float, member: bytes, *, up: bool = True, count: int = 25) -> list[SortedEntry]:
        """The entries behind this one, which may be gone; a page that is short need not be the last."""
        found = sorted_sets.following(self.config.redis, self.name, score, member, up=up, count=count)
        return [self._entry(each) for each in found]

    def fetch(self, score: float | tuple[float, float], jid: str | None = None) -> list[SortedEntry]:
        """The entries of this score, or from one to another, both included; of this jid only, if one is given."""
        low, high = score if isinstance(score, tuple) else (score, score)
        found = []
        for entry in self._walk(low, up=True):
            if entry.score > high:
                break
            if jid is None or entry["jid"] == jid:
                found.append(entry)
        return found

    def scan(self, match: str = "*", count: int = SCAN_COUNT) -> Iterator[SortedEntry]:
        """Every entry whose JSON text has this in it, or matches this glob if it has a `*`; in no order, each once."""
        cursor, seen = 0, set()
        while True:
            cursor, members = sorted_sets.scan(self.config.redis, self.name, cursor, _pattern(match), count)
            for member in members:
                if hash(member) not in seen:
                    seen.add(hash(member))
                    yield self._entry(member)
            if not cursor:
                return

    def search(
        self, match: str, cursor: int = 0, *, max_entries: int = SEARCH_ENTRIES, budget_s: float = SEARCH_S
    ) -> Found:
        """As `scan`, but it looks at no more than so many entries and takes no longer than so many seconds."""
        until, looked_at = clock.monotonic() + budget_s, 0
        found: dict[bytes, SortedEntry] = {}
        while True:
            step = min(SCAN_COUNT, max_entries - looked_at)
            cursor, members = sorted_sets.scan(self.config.redis, self.name, cursor, _pattern(match), step)
            looked_at += step
            found.update((member.raw, self._entry(member)) for member in members)
            if not cursor or looked_at >= max_entries or clock.monotonic() >= until:
                return Found(list(found.values()), cursor, looked_at)

    def find_job(self, jid: str) -> SortedEntry | None:
        """The job of this jid; looks through the whole set."""
        escaped = "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in jid)
        return next((entry for entry in self.scan(f"*{escaped}*") if entry["jid"] == jid), None)

    # --- changes --------------------------------------------------------------------------------------------------

    def schedule(self, at: float, payload: Mapping[str, Any]) -> None:
        """Put a payload into the set as it is, with this score."""
        sorted_sets.add(self.config.redis, self.name, at, wire.encode(payload, self.config.options.max_job_bytes))

    def delete(self, score: float, jid: str) -> bool:
        """Delete the job of this jid that has exactly this score."""
        return any(entry.delete() for entry in self.fetch(score, jid))

    delete_by_jid = delete

    def delete_by_value(self, value: bytes) -> bool:
        """Delete the entry of exactly these bytes."""
        return bool(sorted_sets.remove(self.config.redis, self.name, [value]))

    def clear(self) -> bool:
        """Delete everything at once."""
        sorted_sets.clear(self.config.redis, self.name)
        return True

    def bulk(self, act: Act, **options: Any) -> Bulk:
        """Many entries at once, to be started: see `Bulk`."""
        return Bulk(self.name, act, self.config, **options)

    def retry_all(self, where: Callable[[SortedEntry], bool] | None = None) -> Progress:
        """Put every job that is in the set now into its queue, the lowest score first, without using up attempts."""
        return self.bulk("retry", where=where).run()

    def kill_all(
        self,
        where: Callable[[SortedEntry], bool] | None = None,
        *,
        notify_failure: bool = False,
        ex: BaseException | None = None,
    ) -> Progress:
        """Move every job that is in the set now to the dead set, and then trim that once."""
        return self.bulk("kill", where=where, notify_failure=notify_failure, ex=ex).run()

    def _walk(self, score: float, *, up: bool) -> Iterator[SortedEntry]:
        last: bytes | None = None
        while members := sorted_sets.following(self.config.redis, self.name, score, last, up=up, count=PAGE):
            yield from map(self._entry, members)
            last, score = members[-1]

    def _entry(self, member: sorted_sets.Member) -> SortedEntry:
        return SortedEntry(member, self.name, self.config)


class ScheduledSet(JobSet):
    """Jobs that wait for their time."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(keys.SCHEDULE, config)


class RetrySet(JobSet):
    """Jobs that failed and wait for their next attempt."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(keys.RETRY, config)


class DeadSet(JobSet):
    """Jobs that used up their attempts, or were killed."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(keys.DEAD, config)

    def kill(
        self, value: bytes, *, notify_failure: bool = True, trim: bool = True, ex: BaseException | None = None
    ) -> bool:
        """Put these exact bytes into the set, scored now, and tell the death handlers. Takes them from nowhere."""
        sorted_sets.kill(self.config.redis, value, self.config.options, trim=trim)
        if notify_failure:
            deaths.tell(self.config, value, ex)
        return True

    def trim(self, max_jobs: int | None = None, timeout_s: float | None = None) -> int:
        """Trim by count and age, by these limits or the configured ones; returns how many are left."""
        options = self.config.options
        limits = (
            options.dead_max_jobs if max_jobs is None else max_jobs,
            options.dead_timeout_in_seconds if timeout_s is None else timeout_s,
        )
        return sorted_sets.trim_backlog(self.config.redis, *limits)


def _pattern(match: str) -> str:
    return match if "*" in match else f"*{match}*"
