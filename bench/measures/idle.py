"""What a worker costs while there is nothing to do: its memory, its boot, its processor time."""

from __future__ import annotations

import time
from functools import partial

from bench.arena import QUEUE, THREADS, Arena
from bench.contestants import WURK
from bench.contestants.base import Contestant
from bench.contestants.celery import CeleryDjango
from bench.contestants.wurk import manage
from bench.results import Outcome, Rounds, Row, at_most, ratio, shown

CELERY = CeleryDjango()
WARM_UP_JOBS = 200
SETTLE_S = 3.0
MEMORY_ROUNDS = 3
IDLE_S = 20.0
EIGHT_QUEUES = (*(f"other{number}" for number in range(7)), QUEUE)
CHECK = "manage.py check"


def memory(arena: Arena, rounds: int) -> Outcome:
    """Proportional set size after some jobs, with the same Django project in both; steady, so few rounds do."""
    book = Rounds()
    for _ in range(min(rounds, MEMORY_ROUNDS)):
        for contestant in (WURK, CELERY):
            book.run(contestant.name, partial(_pss_mb, arena, contestant))
    ours, theirs = book.median(WURK.name), book.median(CELERY.name)
    row = Row(
        "memory",
        "memory (PSS) of an idle worker against Celery with the same Django project",
        shown(ours, "MB"),
        shown(theirs, "MB"),
        ratio(ours, theirs),
        target=at_most(1),
    )
    return Outcome([row], book)


def boot(arena: Arena, rounds: int) -> Outcome:
    """From the start of the process to the start of its first job, against `manage.py check` of the same project."""
    book = Rounds()
    for _ in range(rounds):
        book.run(WURK.name, partial(_first_job_s, arena))
        book.run(CHECK, partial(_check_s, arena))
    ours, theirs = book.median(WURK.name), book.median(CHECK)
    row = Row(
        "boot",
        f"boot to first job, beyond `{CHECK}`",
        shown(ours, "s"),
        shown(theirs, "s"),
        None if ours is None or theirs is None else ours - theirs,
        unit=" s",
        target=at_most(0.5, " s"),
    )
    return Outcome([row], book)


def idle_cpu(arena: Arena, rounds: int) -> Outcome:
    """Share of one core that an idle worker on eight queues uses; one long look, since the kernel counts in ticks."""
    book = Rounds()
    book.run(WURK.name, partial(_cpu_percent, arena))
    figure = book.median(WURK.name)
    row = Row(
        "idle-cpu",
        "processor time of an idle worker on eight queues",
        shown(figure, "%"),
        "",
        figure,
        unit=" %",
        target=at_most(0.3, " %"),
    )
    return Outcome([row], book)


def _pss_mb(arena: Arena, contestant: Contestant) -> float:
    arena.clear()
    arena.push(contestant, "noop", WARM_UP_JOBS)
    with arena.worker(contestant) as worker:
        arena.wait_for_stamps(WARM_UP_JOBS, worker)
        time.sleep(SETTLE_S)
        return worker.pss_bytes() / 1e6


def _first_job_s(arena: Arena) -> float:
    arena.clear()
    arena.push(WURK, "noop", 1)
    with arena.worker(WURK) as worker:
        return (arena.wait_for_stamps(1, worker)[0].at_ns - worker.begin_ns) / 1e9


def _check_s(arena: Arena) -> float:
    begin = time.monotonic()
    arena.run(manage("check"))
    return time.monotonic() - begin


def _cpu_percent(arena: Arena) -> float:
    arena.clear()
    arena.push(WURK, "noop", WARM_UP_JOBS)
    with arena.worker(WURK, THREADS, EIGHT_QUEUES) as worker:
        arena.wait_for_stamps(WARM_UP_JOBS, worker)
        time.sleep(SETTLE_S)
        before = worker.cpu_s()
        time.sleep(IDLE_S)
        return (worker.cpu_s() - before) / IDLE_S * 100
