"""The account after a storm: what was created, acknowledged, started and done against what Redis still holds."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.crash.ledger import Entry
from tests.storm.nemesis import Fault

NS = 1_000_000_000
TTL_S = 2.0  # of a heartbeat, in the project's settings
WHOLE_WORKER_S = TTL_S + 5
CHILD_MEDIAN_S, CHILD_P99_S = 2.0, 5.0
PHANTOM_S = 15.0
#: While one of these lasts, and a moment after it, nothing can be recovered: it does not count as a worker's delay.
OF_THE_SERVER = frozenset({"restart server", "kill server", "demote server", "busy script"})


@dataclass(frozen=True)
class Books:
    """Everything that was written down. `held` and `dead` are what Redis has at the end."""

    produced: dict[str, str]  # jid to kind, of every push that was tried
    acked: frozenset[str]
    entries: Sequence[Entry]
    faults: Sequence[Fault]
    held: frozenset[str]
    dead: frozenset[str]


def read_producers(paths: Iterable[Path]) -> tuple[dict[str, str], frozenset[str]]:
    """Every jid that was tried, with its kind; and those whose push was acknowledged."""
    produced, acked = {}, set()
    for path in paths:
        for line in path.read_text().splitlines():
            event, jid, kind, _ = line.split(" ")
            produced[jid] = kind
            if event == "acked":
                acked.add(jid)
    return produced, frozenset(acked)


class Account:
    """Balances the books: `violations` says what must not be, `report` tells the figures."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.starts = Counter((entry.jid, entry.attempt) for entry in books.entries if entry.event == "start")
        self.repeats = sum(count - 1 for count in self.starts.values())
        self.budget = sum(fault.budget for fault in books.faults)
        self.recoveries = {kind: self._recoveries(kind) for kind in ("kill worker", "kill child")}
        self.phantoms = self._phantoms()

    def violations(self) -> list[str]:
        found = []
        if lost := self._lost():
            found.append(f"{len(lost)} acknowledged jobs are lost: {[(j, self.books.produced[j]) for j in lost[:5]]}")
        if strange := {entry.jid for entry in self.books.entries} - set(self.books.produced):
            found.append(f"{len(strange)} jobs ran that nobody made: {sorted(strange)[:5]}")
        if self.books.held:
            found.append(f"Redis still holds {len(self.books.held)} jobs: {sorted(self.books.held)[:5]}")
        if undead := {j for j in self.books.dead if self.books.produced.get(j) != "Doomed"} - self._poisonous():
            found.append(f"{len(undead)} jobs are dead that should not be: {sorted(undead)[:5]}")
        if self.repeats > self.budget:
            found.append(f"{self.repeats} repeats, the faults explain {self.budget}")
        if overlaps := self._overlaps():
            found.append(f"{len(overlaps)} jobs ran in two places at once without a pause: {overlaps[:5]}")
        whole, child = self.recoveries["kill worker"], self.recoveries["kill child"]
        if whole and max(whole) > WHOLE_WORKER_S:
            found.append(f"jobs of a killed worker came back after {max(whole):.1f} s")
        if child and (statistics.median(child) > CHILD_MEDIAN_S or percentile(child, 99) > CHILD_P99_S):
            found.append(f"jobs of a killed child came back late: {summary(child)}")
        if self.phantoms and max(self.phantoms) > PHANTOM_S:
            found.append(f"jobs of a lost claim came back after {max(self.phantoms):.1f} s")
        return found

    def report(self) -> str:
        books, kinds = self.books, Counter(fault.kind for fault in self.books.faults)
        ended = {entry.jid for entry in books.entries if entry.event == "end"}
        return "\n".join(
            [
                f"jobs      {len(books.produced):,} created, {len(books.acked):,} acknowledged, {len(ended):,} done,"
                f" {len(books.dead):,} dead, {len(self._lost())} lost",
                f"kinds     {dict(Counter(books.produced.values()))}",
                f"faults    {sum(kinds.values())}: {dict(kinds)}",
                f"repeats   {self.repeats} of a budget of {self.budget}",
                f"overlaps  {len(self._overlaps(excused=True))} with those that a pause excuses",
                f"recovery  of a killed worker {summary(self.recoveries['kill worker'])}",
                f"          of a killed child  {summary(self.recoveries['kill child'])}",
                f"phantoms  {summary(self.phantoms)} until they ran",
            ]
        )

    def _lost(self) -> list[str]:
        over = {"end", "death"}
        done = {entry.jid for entry in self.books.entries if entry.event in over}
        return sorted(self.books.acked - done - self.books.held - self.books.dead)

    def _poisonous(self) -> set[str]:
        """Those that were started four times for one attempt: their processes were killed again and again."""
        return {jid for (jid, _), count in self.starts.items() if count >= 3}

    # --- times ----------------------------------------------------------------------------------------------------

    def _recoveries(self, kind: str) -> list[float]:
        """For each job that ran in a killed process: the seconds until it was started elsewhere."""
        started: dict[int, list[Entry]] = defaultdict(list)
        starts_of: dict[str, list[Entry]] = defaultdict(list)
        ended = {(entry.jid, entry.pid) for entry in self.books.entries if entry.event in ("end", "fail")}
        for entry in self.books.entries:
            if entry.event == "start":
                started[entry.pid].append(entry)
                starts_of[entry.jid].append(entry)
        found = []
        for fault in (fault for fault in self.books.faults if fault.kind == kind):
            for pid in fault.pids:
                for entry in started[pid]:
                    if (entry.jid, pid) in ended:
                        continue
                    again = [other.at_ns for other in starts_of[entry.jid] if other.at_ns > fault.began_ns]
                    if again:
                        found.append(self._own_delay_s(fault.began_ns, min(again)))
        return found

    def _phantoms(self) -> list[float]:
        starts: dict[str, list[int]] = defaultdict(list)
        for entry in self.books.entries:
            if entry.event == "start":
                starts[entry.jid].append(entry.at_ns)
        return [
            self._own_delay_s(fault.began_ns, min(later))
            for fault in self.books.faults
            for jid in fault.jids
            if (later := [at for at in starts[jid] if at > fault.began_ns])
        ]

    def _own_delay_s(self, from_ns: int, until_ns: int) -> float:
        """The time between, without that in which the server could not serve or another fault struck the helpers."""
        away = 0
        for fault in self.books.faults:
            if fault.kind in OF_THE_SERVER:
                away += max(0, min(until_ns, fault.ended_ns + NS) - max(from_ns, fault.began_ns))
        return max(0, until_ns - from_ns - away) / NS

    def _overlaps(self, *, excused: bool = False) -> list[str]:
        """Jobs that ran in two processes at once; those that a pause explains only when asked for."""
        deaths = {pid: fault.began_ns for fault in self.books.faults if "kill" in fault.kind for pid in fault.pids}
        pauses = [fault for fault in self.books.faults if fault.kind == "pause worker"]
        ends: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        runs: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for entry in self.books.entries:
            if entry.event in ("end", "fail"):
                ends[entry.jid, entry.attempt, entry.pid].append(entry.at_ns)
        for entry in self.books.entries:
            if entry.event != "start":
                continue
            later = [at for at in ends[entry.jid, entry.attempt, entry.pid] if at >= entry.at_ns]
            until_ns = min(later) if later else deaths.get(entry.pid, entry.at_ns)
            runs[entry.jid].append((entry.at_ns, until_ns, entry.pid))
        found = []
        for jid, listed in runs.items():
            listed.sort()
            for (_, until_ns, pid), (from_ns, _, other) in pairwise(listed):
                if pid == other or from_ns >= until_ns:
                    continue
                was_paused = any(pid in fault.pids and fault.began_ns <= until_ns for fault in pauses)
                if excused or not was_paused:
                    found.append(jid)
        return found


def percentile(numbers: Sequence[float], percent: int) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def summary(numbers: Sequence[float]) -> str:
    if not numbers:
        return "none"
    median, late = statistics.median(numbers), percentile(numbers, 99)
    return f"{len(numbers)} jobs, median {median:.2f} s, p99 {late:.2f} s, at worst {max(numbers):.2f} s"
