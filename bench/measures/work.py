"""What the worker takes from jobs that do something, against bare loops of the same work in the same run."""

from __future__ import annotations

from functools import partial

from bench.arena import Arena
from bench.contestants import WURK
from bench.measures.drain import drain_once
from bench.results import Outcome, Rounds, Row, at_least, ratio, shown

JOBS = 3_000
TURNS = 3  # a round; the same loop of Python swings by 15 % within seconds on a shared machine


def sleep10ms(arena: Arena, rounds: int) -> Outcome:
    """Ten milliseconds of waiting a job, ten threads, against ten threads that only sleep."""
    return _against_bare(arena, rounds, "sleep10ms", "sleep", "10 ms of sleep against ten bare threads")


def cpu1ms(arena: Arena, rounds: int) -> Outcome:
    """A millisecond of pure Python a job, ten threads, against the same Python in a bare loop."""
    return _against_bare(arena, rounds, "cpu1ms", "cpu", "1 ms of pure Python against a bare loop")


def _against_bare(arena: Arena, rounds: int, measure: str, job: str, what: str) -> Outcome:
    book = Rounds()
    bare = "bare loop"
    for _ in range(rounds * TURNS):
        book.run(WURK.name, partial(drain_once, arena, WURK, job, JOBS // TURNS))
        book.run(bare, partial(arena.bare, job, JOBS // TURNS))
    ours, theirs = book.median(WURK.name), book.median(bare)
    row = Row(
        measure,
        what,
        shown(ours, "jobs/s"),
        shown(theirs, "runs/s"),
        ratio(ours, theirs),
        target=at_least(0.95),
    )
    return Outcome([row], book)
