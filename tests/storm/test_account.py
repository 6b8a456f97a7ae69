"""The account finds what a broken worker would leave: each rule is shown books that break it."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.ledger import Entry
from tests.storm.account import NS, Account, Books
from tests.storm.nemesis import Fault


def entry(event: str, jid: str, pid: int, at_s: float, attempt: str = "None") -> Entry:
    return Entry(event, jid, attempt, pid, int(at_s * NS))


def fault(kind: str, from_s: float, until_s: float, budget: int = 0, pids: tuple[int, ...] = ()) -> Fault:
    return Fault(kind, int(from_s * NS), int(until_s * NS), budget, frozenset(pids))


GOOD = Books(
    produced={"a": "Work", "b": "Work"},
    acked=frozenset({"a", "b"}),
    entries=[entry("start", "a", 1, 1), entry("end", "a", 1, 2), entry("start", "b", 1, 2), entry("end", "b", 1, 3)],
    faults=[],
    held=frozenset(),
    dead=frozenset(),
)


def complaints(books: Books) -> str:
    return "\n".join(Account(books).violations())


def test_good_books_balance() -> None:
    assert complaints(GOOD) == ""
    assert "2 acknowledged, 2 done" in Account(GOOD).report()


def test_an_acknowledged_job_that_is_nowhere_is_lost() -> None:
    assert "lost" in complaints(
        replace(GOOD, acked=frozenset({"a", "b", "c"}), produced={**GOOD.produced, "c": "Work"})
    )


def test_a_push_whose_outcome_is_unknown_may_be_nowhere() -> None:
    assert complaints(replace(GOOD, produced={**GOOD.produced, "c": "Work"})) == ""


def test_a_job_that_redis_still_holds_is_told() -> None:
    assert "still holds" in complaints(replace(GOOD, held=frozenset({"a"})))


def test_a_repeat_needs_a_fault() -> None:
    again = [*GOOD.entries, entry("start", "a", 2, 5), entry("end", "a", 2, 6)]

    assert "repeats" in complaints(replace(GOOD, entries=again))
    assert complaints(replace(GOOD, entries=again, faults=[fault("reset lines", 4, 4, budget=1)])) == ""


def test_an_overlap_needs_a_pause() -> None:
    both = [*GOOD.entries, entry("start", "a", 2, 1.5), entry("end", "a", 2, 1.8)]
    explained = fault("reset lines", 1, 1, budget=1)

    assert "two places" in complaints(replace(GOOD, entries=both, faults=[explained]))
    assert complaints(replace(GOOD, entries=both, faults=[explained, fault("pause worker", 0.5, 1.7, 0, (1,))])) == ""


def test_a_job_that_comes_back_late_is_told() -> None:
    started = [*GOOD.entries, entry("start", "b", 3, 4), entry("start", "b", 4, 20), entry("end", "b", 4, 21)]
    for kind in ("kill worker", "kill child"):
        assert "killed" in complaints(replace(GOOD, entries=started, faults=[fault(kind, 5, 5, 4, (3,))]))


def test_a_dead_job_that_did_not_fail_is_told() -> None:
    assert "dead" in complaints(replace(GOOD, dead=frozenset({"a"})))
