"""Signals: what a worker process does with its jobs when it is told to stop or to be quiet."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.crash.harness import Stage, is_claim
from tests.support.faults import After, Before, named
from tests.support.processes import WorkerProcess, eventually
from wurk_django.storage import processes

pytestmark = pytest.mark.crash


def started(stage: Stage, *jids: str) -> Callable[[], bool]:
    return lambda: stage.ledger.jids("start") >= set(jids)


@pytest.mark.oracle("reports:P05", "reliability:A6")
def test_at_a_stop_a_short_job_ends_and_a_long_one_goes_to_the_head_of_its_queue(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, flags=["-t", "1"])
    short, long = stage.push("Hold", "soon"), stage.push("Hold", "never")
    eventually(started(stage, short, long))
    later = stage.push("Work")

    worker.send(signal.SIGTERM)
    time.sleep(0.3)  # well inside the timeout
    stage.open_gate("soon")

    assert worker.wait(10) == 0
    assert stage.ledger.times(short) == {"start": 1, "end": 1}
    waiting = [raw.decode() for raw in stage.redis.lrange("queue:default", 0, -1)]
    assert [later in waiting[0], long in waiting[1], len(waiting)] == [True, True, 2]
    assert stage.where(long) == ["queue:default"]
    assert stage.redis.smembers("processes") == set()


@pytest.mark.oracle("reports:P05")
def test_the_rerun_of_a_job_that_was_requeued_at_a_stop_is_an_ordinary_first_attempt(stage: Stage) -> None:
    first = stage.worker(TIMEOUT=0.2)
    jid = stage.push("Long")
    eventually(started(stage, jid))

    first.send(signal.SIGTERM)
    assert first.wait(10) == 0
    stage.worker()

    stage.wait_until_done([jid])
    assert stage.ledger.starts() == {(jid, "None"): 2}
    assert stage.redis.zcard("retry") == 0


def test_further_signals_during_a_stop_change_nothing(stage: Stage) -> None:
    worker = stage.worker(TIMEOUT=20)
    jid = stage.push("Hold", "gate")
    eventually(started(stage, jid))

    for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGTERM):
        worker.send(signum)
        time.sleep(0.1)
    assert worker.code is None
    stage.open_gate("gate")

    assert worker.wait(10) == 0
    assert stage.ledger.times(jid) == {"start": 1, "end": 1}
    assert stage.where(jid) == []


def test_an_idle_worker_stops_at_once(stage: Stage) -> None:
    worker = stage.worker(FETCH_BLOCK=10)
    worker.wait_until_ready(stage.redis)
    eventually(lambda: stage.redis.info("clients")["blocked_clients"] == 1)

    worker.send(signal.SIGINT)

    assert worker.wait(2) == 0


def test_a_stop_does_not_wait_for_a_claim_that_it_has_overtaken(stage: Stage) -> None:
    worker = stage.worker(FETCH_BLOCK=10, TIMEOUT=20)

    def stop_first() -> None:
        worker.send(signal.SIGTERM)
        time.sleep(0.3)  # the request to end the wait arrives before the wait itself

    waits = stage.proxy.on(named("BLMOVE"), Before(stop_first))
    eventually(lambda: waits.hits, 15)

    assert worker.wait(4) == 0


@pytest.mark.oracle("reports:P03")
@pytest.mark.parametrize("claim", ["pass", "wait"])
def test_a_stop_between_a_claim_and_its_start_leaves_the_job_run_or_in_its_queue(claim: str, stage: Stage) -> None:
    worker = stage.worker()

    def stop() -> None:
        worker.send(signal.SIGTERM)
        time.sleep(0.5)  # the signal is acted on while the answer is on its way

    if claim == "pass":
        jid = stage.push("Work")
        stage.proxy.on(is_claim, After(stop))
    else:
        stage.proxy.on(named("BLMOVE"), After(stop))
        worker.wait_until_ready(stage.redis)
        eventually(lambda: stage.redis.info("clients")["blocked_clients"] == 1)
        jid = stage.push("Work")

    assert worker.wait(10) == 0
    done = stage.ledger.times(jid) == {"start": 1, "end": 1}
    assert stage.where(jid) == ([] if done else ["queue:default"])


def test_a_quiet_worker_finishes_what_runs_claims_nothing_more_and_lives_on(stage: Stage) -> None:
    worker = stage.worker()
    running = stage.push("Hold", "gate")
    eventually(started(stage, running))
    name = worker.identity(stage.redis) or ""

    worker.send(signal.SIGTSTP)
    eventually(lambda: stage.redis.hget(name, "quiet") == b"true")
    waiting = stage.push("Work")
    stage.open_gate("gate")

    eventually(lambda: stage.where(running) == [])
    beat = stage.redis.hget(name, "beat")
    eventually(lambda: stage.redis.hget(name, "beat") != beat)
    assert stage.where(waiting) == ["queue:default"]
    worker.send(signal.SIGTERM)
    assert worker.wait(5) == 0


@pytest.mark.parametrize(("signum", "code"), [("TERM", 0), ("TSTP", None)])
def test_signals_sent_through_redis_act_like_real_ones(signum: str, code: int | None, stage: Stage) -> None:
    worker = stage.worker()
    name = worker.wait_until_ready(stage.redis)

    processes.send_signal(stage.client.config.redis, name, signum)

    if code is None:
        eventually(lambda: stage.redis.hget(name, "quiet") == b"true")
        assert worker.code is None
    else:
        assert worker.wait(5) == code


def test_rolling_restarts_under_load_repeat_nothing(stage: Stage) -> None:
    jids = stage.push_many("Work", [[3]] * 600)

    def restart(old: WorkerProcess | None) -> WorkerProcess:
        new = stage.worker()
        new.wait_until_ready(stage.redis)
        if old is not None:
            old.send(signal.SIGTERM)
            assert old.wait() == 0
        return new

    worker = restart(None)
    for _ in range(4):
        worker = restart(worker)

    stage.wait_until_done(jids)
    assert set(stage.ledger.starts().values()) == {1}
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    stage.check_keys()


def test_burst_works_off_everything_that_is_due_and_ends_with_zero(stage: Stage) -> None:
    now = stage.push_many("Work", [[1]] * 200)
    due = stage.push_many("Work", [[1]], at=time.time() + 0.1)
    later = stage.push("Work", at=time.time() + 3600)
    time.sleep(0.2)  # until it is due

    worker = stage.worker(flags=["--burst"])

    assert worker.wait() == 0, worker.output
    assert stage.ledger.jids("end") == {*now, *due}
    assert stage.where(later) == ["schedule"]
