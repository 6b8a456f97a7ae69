"""How fast jobs are sent, from one thread of one process: a call a job, and in bulk by the thousand."""

from __future__ import annotations

from functools import partial

from bench.arena import Arena
from bench.contestants import SIDEKIQ, WURK
from bench.contestants.base import Contestant
from bench.results import Outcome, Rounds, Row, at_least, ratio, shown

COUNTS = {"single": 10_000, "bulk": 100_000}
LABELS = {"single": "one by one", "bulk": "in bulk"}
TARGETS = {"single": at_least(1), "bulk": at_least(1.2)}


def enqueue(arena: Arena, rounds: int) -> Outcome:
    """Against Sidekiq, in turns."""
    book = Rounds()
    for _ in range(rounds):
        for mode in COUNTS:
            for contestant in (WURK, SIDEKIQ):
                book.run(_name(contestant, mode), partial(_pushes_a_second, arena, contestant, mode))
    return Outcome([_row(book, mode) for mode in COUNTS], book)


def _name(contestant: Contestant, mode: str) -> str:
    return f"{contestant.name}, {LABELS[mode]}"


def _pushes_a_second(arena: Arena, contestant: Contestant, mode: str) -> float:
    arena.clear()
    return COUNTS[mode] / arena.push(contestant, "noop", COUNTS[mode], mode)


def _row(book: Rounds, mode: str) -> Row:
    names = _name(WURK, mode), _name(SIDEKIQ, mode)
    ours, theirs = (book.median(name) for name in names)
    return Row(
        "enqueue",
        f"enqueue {LABELS[mode]} against {SIDEKIQ.name}",
        shown(ours, "jobs/s"),
        shown(theirs, "jobs/s"),
        ratio(ours, theirs),
        target=TARGETS[mode],
    )
