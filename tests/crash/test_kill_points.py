"""What one kill at one point leaves in Redis, where the storms cannot look."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.crash.harness import RECOVERY_S, Stage, is_ack, is_claim, promote, requeue
from tests.support.faults import Kill, named
from tests.support.processes import WorkerProcess, eventually

HEARTBEAT_TTL_S = 2.0

pytestmark = pytest.mark.crash


def started(stage: Stage, *jids: str) -> Callable[[], bool]:
    return lambda: stage.ledger.jids("start") >= set(jids)


def await_kill(stage: Stage, worker: WorkerProcess) -> None:
    assert worker.wait() == -signal.SIGKILL, worker.output
    stage.settle()


@pytest.mark.oracle("safety:K2", "reliability:F3")
def test_a_job_claimed_by_a_waiting_worker_that_dies_is_back_within_the_heartbeat_and_five_seconds(
    stage: Stage,
) -> None:
    worker = stage.worker()
    stage.proxy.on(named("BLMOVE"), Kill.after(worker.pid))  # waits until the push below, then kills
    worker.wait_until_ready(stage.redis)
    eventually(lambda: stage.redis.info("clients")["blocked_clients"] == 1)

    jid = stage.push("Work")
    await_kill(stage, worker)

    died_at = time.monotonic()
    assert stage.where(jid) == ["private"]
    assert stage.ledger.times(jid) == {}
    stage.worker()
    stage.wait_until_done([jid], HEARTBEAT_TTL_S + 5 - (time.monotonic() - died_at))
    assert stage.ledger.times(jid) == {"start": 1, "end": 1}


@pytest.mark.oracle("safety:K6", "reliability:A4")
def test_a_job_whose_ack_was_applied_does_not_run_again_though_the_answer_was_lost(stage: Stage) -> None:
    worker = stage.worker()
    stage.proxy.on(is_ack, Kill.after(worker.pid))
    jid = stage.push("Work")

    await_kill(stage, worker)

    assert stage.where(jid) == []
    assert stage.ledger.times(jid) == {"start": 1, "end": 1}


@pytest.mark.oracle("safety:K9")
@pytest.mark.parametrize(("moment", "left"), [(Kill.before, ["private"]), (Kill.after, [])])
def test_a_job_without_retries_is_private_or_gone_and_its_death_handlers_have_run(
    moment: Callable[[int], object], left: list[str], stage: Stage
) -> None:
    worker = stage.worker()
    stage.proxy.on(is_ack, moment(worker.pid))
    jid = stage.push("Dropped", retry=False)

    await_kill(stage, worker)

    assert stage.where(jid) == left
    assert stage.ledger.times(jid) == {"start": 1, "fail": 1, "death": 1}


@pytest.mark.oracle("safety:K10")
def test_a_worker_killed_while_it_drains_leaves_its_jobs_in_its_private_list(stage: Stage) -> None:
    worker = stage.worker(TIMEOUT=30)
    running = stage.push("Hold", "never")
    eventually(started(stage, running))
    worker.send(signal.SIGTERM)
    name = worker.identity(stage.redis) or ""
    eventually(lambda: stage.redis.hget(name, "quiet") == b"true")

    worker.kill()

    stage.settle()
    assert stage.where(running) == ["private"]


@pytest.mark.oracle("safety:K10")
def test_a_worker_killed_between_two_requeues_leaves_each_job_in_one_place(stage: Stage) -> None:
    worker = stage.worker(TIMEOUT=0.2)
    older, newer = stage.push("Hold", "never"), stage.push("Hold", "never")
    eventually(started(stage, older, newer))
    stage.proxy.on(requeue, Kill.before(worker.pid), skip=1)

    worker.send(signal.SIGTERM)
    await_kill(stage, worker)

    assert sorted([stage.where(older), stage.where(newer)]) == [["private"], ["queue:default"]]


@pytest.mark.oracle("safety:K10", "reliability:A6")
def test_a_worker_killed_after_its_requeues_leaves_its_jobs_at_the_head_in_their_order(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, TIMEOUT=0.2)
    jids = [stage.push("Hold", "never"), stage.push("Hold", "never")]
    eventually(started(stage, *jids))
    waiting = stage.push("Work")
    name = worker.identity(stage.redis) or ""
    stage.proxy.on(lambda command: command[:2] == (b"SREM", b"processes"), Kill.before(worker.pid))

    worker.send(signal.SIGTERM)
    await_kill(stage, worker)

    order = [raw.decode() for raw in reversed(stage.redis.lrange("queue:default", 0, -1))]
    assert [next(jid for jid in [*jids, waiting] if jid in raw) for raw in order] == [*jids, waiting]
    assert stage.redis.sismember("processes", name)
    stage.redis.delete("process_cleanup")
    stage.worker(queues=["other"]).wait_until_ready(stage.redis)
    eventually(lambda: not stage.redis.exists(name))


@pytest.mark.oracle("safety:K11", "reliability:A7")
def test_a_job_that_ends_just_after_it_was_requeued_runs_once_more_and_is_gone_then(stage: Stage) -> None:
    worker = stage.worker(TIMEOUT=0.2)
    jid = stage.push("Hold", "gate")
    eventually(started(stage, jid))

    class LetGo:
        """The job ends while the answer to its requeue is on its way."""

        def __call__(self, exchange: object) -> None:
            reply = exchange.forward()  # type: ignore[attr-defined]
            stage.open_gate("gate")
            eventually(lambda: jid in stage.ledger.jids("end"))
            exchange.reply(reply)  # type: ignore[attr-defined]

    stage.proxy.on(requeue, LetGo())
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert stage.where(jid) == ["queue:default"]
    stage.worker()
    stage.wait_until_done([jid], RECOVERY_S)
    assert stage.ledger.times(jid) == {"start": 2, "end": 2}


@pytest.mark.oracle("safety:K17", "safety:K18", "reliability:SC2")
@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("moment", "place"), [(Kill.before, "schedule"), (Kill.after, "queue:default")])
def test_a_scheduler_killed_at_a_promotion_has_moved_all_due_jobs_or_none(
    moment: Callable[[int], object], place: str, count: int, stage: Stage
) -> None:
    jids = stage.push_many("Work", [[]] * count, at=time.time() + 0.05)
    worker = stage.worker(queues=["other"])
    stage.proxy.on(lambda command: promote(command) and b"schedule" in command, moment(worker.pid))

    await_kill(stage, worker)

    assert {tuple(stage.where(jid)) for jid in jids} == {(place,)}


@pytest.mark.oracle("safety:K3")
def test_a_claim_that_never_left_leaves_the_job_in_its_queue(stage: Stage) -> None:
    jid = stage.push("Work")
    worker = stage.worker()
    stage.proxy.on(is_claim, Kill.before(worker.pid))

    await_kill(stage, worker)

    assert stage.where(jid) == ["queue:default"]
