"""How long a job waits on an idle worker: 50 a second, from the call that sends it to the start of its perform.

Each contestant sends by its own client. One round's 99th percentile swings widely, so all rounds are pooled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from bench.arena import QUEUE, Arena
from bench.contestants import SIDEKIQ, WURK
from bench.contestants.base import Contestant
from bench.process import ContestantError
from bench.results import Outcome, Rounds, Row, Target, at_most, ratio, shown

JOBS = 225
WARM_UP_JOBS = 25
SETTLE_S = 0.5


@dataclass(frozen=True)
class Scene:
    """A worker's shape, and what its percentiles may be over those of Sidekiq in the scene `baseline`."""

    label: str
    threads: int
    queues: tuple[str, ...]
    baseline: str
    median_target: Target
    tail_target: Target | None


PLAIN = "10 threads, one queue"
SCENES = (
    Scene(PLAIN, 10, (QUEUE,), PLAIN, at_most(1), at_most(1)),
    Scene(
        "10 threads, last of eight queues",
        10,
        (*(f"other{number}" for number in range(7)), QUEUE),
        "10 threads, last of eight queues",
        at_most(1),
        at_most(1),
    ),
    # With one thread the median is held against Sidekiq's with ten.
    Scene("one thread, one queue", 1, (QUEUE,), PLAIN, at_most(1.5), None),
)


def latency(arena: Arena, rounds: int) -> Outcome:
    """Milliseconds, against Sidekiq, in turns."""
    book = Rounds()
    for _ in range(rounds):
        for scene in SCENES:
            for contestant in (WURK, SIDEKIQ):
                book.run(_name(contestant, scene.label), partial(_waits_ms, arena, contestant, scene))
    return Outcome([row for scene in SCENES for row in _rows(book, scene)], book)


def _name(contestant: Contestant, label: str) -> str:
    return f"{contestant.name}, {label}"


def _waits_ms(arena: Arena, contestant: Contestant, scene: Scene) -> list[float]:
    arena.clear()
    with arena.worker(contestant, scene.threads, scene.queues) as worker:
        # The first job tells that the worker is up; its wait is the boot.
        arena.push(contestant, "started", 1, "single")
        arena.wait_for_stamps(1, worker)
        time.sleep(SETTLE_S)
        arena.push(contestant, "started", JOBS, "paced")
        stamps = arena.wait_for_stamps(JOBS + 1, worker)
    waits = [(stamp.at_ns - stamp.number) / 1e6 for stamp in stamps[1 + WARM_UP_JOBS :]]
    if min(waits) < 0:
        raise ContestantError("a job started before it was sent: the processes do not share a clock")
    return waits


def _rows(book: Rounds, scene: Scene) -> list[Row]:
    return [_row(book, scene, 50, scene.median_target), _row(book, scene, 99, scene.tail_target)]


def _row(book: Rounds, scene: Scene, percent: int, target: Target | None) -> Row:
    names = _name(WURK, scene.label), _name(SIDEKIQ, scene.baseline)
    ours, theirs = (book.percentile(name, percent) for name in names)
    against = SIDEKIQ.name if scene.baseline == scene.label else f"{SIDEKIQ.name} with {scene.baseline}"
    return Row(
        "latency",
        f"enqueue to start, p{percent}, {scene.label}, against {against}",
        shown(ours, "ms"),
        shown(theirs, "ms"),
        ratio(ours, theirs),
        target=target,
    )
