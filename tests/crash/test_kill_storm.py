"""A thousand jobs and twenty kills at each point of a job's life: none is lost, and no start is unexplained."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

import pytest

from tests.crash.harness import Stage, book_retry, bury, is_ack, is_claim, promote, requeue_of
from tests.crash.storm import Storm
from tests.support.faults import Kill
from tests.support.processes import WorkerProcess, eventually

JOBS = 1000
KILLS = 20
THREADS = 5

pytestmark = pytest.mark.crash


@pytest.fixture
def storm(stage: Stage) -> Storm:
    return Storm(stage, [], lambda: stage.worker(concurrency=THREADS, TIMEOUT=0.2))


@pytest.mark.oracle("safety:K2", "reliability:F3")
def test_kills_after_a_claim_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = stage.push_many("Work", [[dice.choice([0, 2, 4])] for _ in range(JOBS)])

    def arm(worker: WorkerProcess) -> None:
        stage.proxy.on(is_claim, Kill.after(worker.pid), skip=dice.randint(0, 12))

    storm.run([(arm, None, "private")] * KILLS)


@pytest.mark.oracle("safety:K3", "safety:K4")
@pytest.mark.parametrize("trap", ["kill-at-first-line", "kill-mid-perform"])
def test_kills_of_a_running_job_lose_nothing(stage: Stage, storm: Storm, dice: Random, trap: str) -> None:
    storm.jids = stage.push_many("Work", [[dice.choice([2, 3, 4])] for _ in range(JOBS)])

    def arm(worker: WorkerProcess) -> None:
        seen = dice.randint(1, 20)
        eventually(lambda: len(stage.ledger.entries("start", pid=worker.pid)) >= seen)
        stage.lay(trap)

    storm.run([(arm, "start", "private")] * KILLS)

    assert storm.repeats <= KILLS * THREADS


@pytest.mark.oracle("safety:K5", "reliability:A3")
def test_kills_after_perform_and_before_the_ack_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = stage.push_many("Work", [[dice.choice([2, 3, 4])] for _ in range(JOBS)])

    def arm(worker: WorkerProcess) -> None:
        stage.proxy.on(is_ack, Kill.before(worker.pid), skip=dice.randint(0, 12))

    storm.run([(arm, "end", "private")] * KILLS)

    assert storm.repeats <= KILLS * THREADS


@pytest.mark.oracle("safety:K7", "reliability:A15")
def test_kills_while_a_retry_is_booked_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = stage.push_many("Flaky", [[dice.choice([1, 2])] for _ in range(JOBS)])

    def arm(kill: Callable[[int], object]) -> Callable[[WorkerProcess], object]:
        return lambda worker: stage.proxy.on(book_retry, kill(worker.pid), skip=dice.randint(0, 15))

    before, after = (arm(Kill.before), "fail", "private"), (arm(Kill.after), "fail", "retry")
    storm.run([before, after] * (KILLS // 2))

    assert storm.repeats <= KILLS * THREADS


@pytest.mark.oracle("safety:K10", "reliability:A6")
def test_kills_while_requeueing_at_shutdown_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = []
    for _ in range(JOBS // 8):
        storm.jids += [*stage.push_many("Work", [[dice.choice([1, 2])] for _ in range(7)]), stage.push("Long")]

    def arm(kill: Callable[[int], object]) -> Callable[[WorkerProcess], object]:
        def stop(worker: WorkerProcess) -> None:
            eventually(lambda: len(stuck(worker.pid)) >= 2)
            stage.proxy.on(requeue_of(stuck(worker.pid)), kill(worker.pid), skip=dice.randint(0, 1))
            worker.send(signal.SIGTERM)

        return stop

    def stuck(pid: int) -> set[str]:
        ended = {entry.jid for entry in stage.ledger.entries("end", pid=pid)}
        long_ago = time.monotonic_ns() - 100_000_000
        started = stage.ledger.entries("start", pid=pid)
        return {entry.jid for entry in started if entry.jid not in ended and entry.at_ns < long_ago}

    before, after = (arm(Kill.before), "start", "private"), (arm(Kill.after), "start", "queue:default")
    storm.run([before, after] * (KILLS // 2))

    assert storm.repeats <= KILLS * THREADS


@pytest.mark.oracle("safety:K8", "reliability:A15")
def test_kills_on_the_way_to_the_dead_set_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = stage.push_many("Doomed", [[]] * JOBS, retry=0)

    def lay(trap: str) -> Callable[[WorkerProcess], object]:
        return lambda _worker: stage.lay(trap)

    def arm(kill: Callable[[int], object]) -> Callable[[WorkerProcess], object]:
        return lambda worker: stage.proxy.on(bury, kill(worker.pid), skip=dice.randint(0, 15))

    points = [
        (lay("kill-before-death-handler"), "fail", "private"),
        (lay("kill-after-death-handler"), "death", "private"),
        (arm(Kill.before), "death", "private"),
        (arm(Kill.after), "death", "dead"),
    ]
    storm.run(points * (KILLS // 4))

    assert stage.dead() == set(storm.jids) <= stage.ledger.jids("death")
    assert storm.repeats <= KILLS * THREADS


@pytest.mark.oracle("safety:K17", "safety:K18", "reliability:SC2")
def test_kills_of_a_scheduler_at_work_lose_nothing(stage: Stage, storm: Storm, dice: Random) -> None:
    storm.jids = stage.push_many("Work", [[1]] * JOBS, spread_interval=25)

    def arm(kill: Callable[[int], object]) -> Callable[[WorkerProcess], object]:
        return lambda worker: stage.proxy.on(
            lambda command: promote(command) and bool(stage.redis.zcount("schedule", "-inf", time.time())),
            kill(worker.pid),
            skip=dice.randint(0, 2),
        )

    before, after = (arm(Kill.before), None, "schedule"), (arm(Kill.after), None, "schedule")
    storm.run([before, after] * (KILLS // 2))
