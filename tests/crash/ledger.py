"""What the jobs of the project wrote about themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Attempt = tuple[str, str]  # jid and retry count, "None" at the first


@dataclass(frozen=True)
class Entry:
    event: str  # start, end, fail, death
    jid: str
    attempt: str
    pid: int
    at_ns: int  # monotonic


class Ledger:
    """Reads the file anew with each question; the processes only ever append to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self, event: str | None = None, *, jid: str | None = None, pid: int | None = None) -> list[Entry]:
        """The lines in the order in which they were written."""
        if not self._path.exists():
            return []
        found = []
        for line in self._path.read_text().splitlines():
            name, job, attempt, process, at_ns = line.split(" ")
            found.append(Entry(name, job, attempt, int(process), int(at_ns)))
        return [
            entry
            for entry in found
            if event in (None, entry.event) and jid in (None, entry.jid) and pid in (None, entry.pid)
        ]

    def jids(self, event: str) -> set[str]:
        return {entry.jid for entry in self.entries(event)}

    def starts(self) -> Counter[Attempt]:
        """How often each attempt at a job was started."""
        return Counter((entry.jid, entry.attempt) for entry in self.entries("start"))

    def times(self, jid: str) -> dict[str, int]:
        """How often each event of a job was noted."""
        return dict(Counter(entry.event for entry in self.entries(jid=jid)))
