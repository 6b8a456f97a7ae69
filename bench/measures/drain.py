"""How fast a full queue empties: jobs are pushed first, then a worker starts, and its own jobs' stamps time it.

The clock runs from the start of the first job to that of the last, so boot is left out. Every twentieth part of the
numbers leaves a stamp, the last one too, and before the rounds each contestant must run each of some jobs exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from bench.arena import QUEUE, Arena, Stamp
from bench.contestants import CONTESTANTS, SIDEKIQ, WURK
from bench.contestants.base import Contestant
from bench.process import POLL_S, ContestantError
from bench.results import Outcome, Rounds, Row, Target, at_least, at_most, ratio, shown

PARTS = 20
CHECK_JOBS = 200
SETTLE_S = 1.0
BOOT_TIMEOUT_S = 20.0
TARGETS: dict[str, Target] = {"Sidekiq": at_least(3), "Dramatiq": at_least(7), "Celery": at_least(25)}


def drain(arena: Arena, rounds: int, contestants: Sequence[Contestant] = CONTESTANTS) -> Outcome:
    """No-op jobs, one process, ten threads."""
    book = Rounds()
    for contestant in contestants:
        book.run(contestant.name, partial(check_each_runs_once, arena, contestant))
    for _ in range(rounds):
        for contestant in contestants:
            book.run(contestant.name, partial(drain_once, arena, contestant))
    rows = [_row(book, contestant.name) for contestant in contestants if contestant is not WURK]
    return Outcome(rows, book)


def drain_against_sidekiq(arena: Arena, rounds: int) -> Outcome:
    """The quick form: ours and Sidekiq alone."""
    return drain(arena, rounds, (WURK, SIDEKIQ))


def processes(arena: Arena, rounds: int) -> Outcome:
    """Two worker processes against one, on the same queue."""
    book = Rounds()
    for _ in range(rounds):
        for count in (1, 2):
            book.run(_processes_name(count), partial(_drain_processes_once, arena, count))
    one, two = _processes_name(1), _processes_name(2)
    ours, theirs = book.median(two), book.median(one)
    what = "no-op drain, two processes against one"
    rate = "jobs/s"
    row = Row(
        "processes",
        what,
        shown(ours, rate),
        shown(theirs, rate),
        ratio(ours, theirs),
        target=at_least(1.6),
    )
    return Outcome([row], book)


def round_trips(arena: Arena, rounds: int) -> Outcome:
    """Requests that reach Redis for each job of a full queue.

    Counted by `total_reads_processed`, the server's reads from clients' sockets: a pipeline is one, and what a script
    calls inside is none, while `commandstats` and `total_commands_processed` count those too. A request larger than the
    server's read buffer counts more than once, so the figure errs upwards.
    """
    book = Rounds()
    book.run(WURK.name, partial(_round_trips_once, arena))
    figure = book.median(WURK.name)
    row = Row(
        "round-trips",
        "round trips a job on a full queue",
        shown(figure, ""),
        "",
        figure,
        unit="",
        target=at_most(0.2, ""),
    )
    return Outcome([row], book)


def check_each_runs_once(arena: Arena, contestant: Contestant) -> list[float]:
    """Make sure that the contestant is there and runs every job of a small queue once; takes no sample."""
    contestant.version()
    arena.clear()
    arena.push(contestant, "noop", CHECK_JOBS)
    with arena.worker(contestant) as worker:
        stamps = arena.wait_for_stamps(CHECK_JOBS, worker)
    if sorted(stamp.number for stamp in stamps) != list(range(CHECK_JOBS)):
        raise ContestantError("it ran a job twice")
    return []


def drain_once(arena: Arena, contestant: Contestant, job: str = "noop", count: int = 0) -> float:
    """One round: jobs a second."""
    stride = (count or contestant.drain_jobs) // PARTS
    arena.clear(stride)
    arena.push(contestant, job, stride * PARTS + 1)
    with arena.worker(contestant) as worker:
        return _jobs_a_second(arena.wait_for_stamps(PARTS + 1, worker))


def _row(book: Rounds, peer: str) -> Row:
    ours, theirs = book.median(WURK.name), book.median(peer)
    return Row(
        "drain",
        f"no-op drain against {peer}",
        shown(ours, "jobs/s"),
        shown(theirs, "jobs/s"),
        ratio(ours, theirs),
        target=TARGETS.get(peer),
    )


def _jobs_a_second(stamps: Sequence[Stamp]) -> float:
    numbers = [stamp.number for stamp in stamps]
    times_ns = [stamp.at_ns for stamp in stamps]
    return (max(numbers) - min(numbers)) / ((max(times_ns) - min(times_ns)) / 1e9)


def _processes_name(count: int) -> str:
    return f"{WURK.name}, {count} process{'es' if count > 1 else ''}"


def _drain_processes_once(arena: Arena, count: int) -> float:
    """All processes are up before the first job is there: the queue is set aside under another name meanwhile."""
    stride = WURK.drain_jobs // PARTS
    arena.clear(stride)
    arena.push(WURK, "noop", stride * PARTS + 1)
    arena.redis.rename(f"queue:{QUEUE}", "bench:aside")
    with ExitStack() as stack:
        workers = [stack.enter_context(arena.worker(WURK)) for _ in range(count)]
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while arena.redis.scard("processes") < count:
            for worker in workers:
                worker.check_alive()
            if time.monotonic() > deadline:
                raise ContestantError(f"no heartbeat within {BOOT_TIMEOUT_S:.0f} s: {workers[0].last_words()}")
            time.sleep(POLL_S)
        time.sleep(SETTLE_S)
        arena.redis.rename("bench:aside", f"queue:{QUEUE}")
        return _jobs_a_second(arena.wait_for_stamps(PARTS + 1, *workers))


def _round_trips_once(arena: Arena) -> float:
    stride = WURK.drain_jobs // PARTS
    arena.clear(stride)
    arena.push(WURK, "noop", stride * PARTS + 1)
    before = arena.info("stats")["total_reads_processed"]
    with arena.worker(WURK) as worker:
        arena.wait_for_stamps(PARTS + 1, worker)
        after = arena.info("stats")["total_reads_processed"]
    reads: int = after - before
    return reads / (stride * PARTS + 1)
