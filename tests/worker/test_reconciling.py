"""A claim whose answer was lost, and Redis that goes away: a living worker recovers by itself."""

from __future__ import annotations

import logging
import time

import pytest
import redis as redis_py

from tests.support.faults import After, Answer, CutReply, LoseReply, named, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from tests.worker.rig import (
    Recorder,
    Rig,
    blocked,
    enqueue,
    numbered,
    payload,
    private,
    queued,
    stays,
    take,
    wait_for,
    warm,
)
from wurk_django.storage import queues
from wurk_django.worker import identity

dispatching = script(queues._dispatch.sha.decode())


@pytest.fixture(autouse=True)
def _short_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wurk_django.worker.downtime.MAX_PAUSE_S", 0.1)
    monkeypatch.setattr("wurk_django.worker.scheduler.FALLBACK_WAIT_S", 0.1)


@pytest.mark.oracle("reliability:F9", "safety:R2", "safety:K2")
@pytest.mark.parametrize("fault", [LoseReply(), LoseReply(hang=True), CutReply(9)], ids=["lost", "silence", "cut"])
def test_a_job_claimed_with_a_lost_answer_runs_once_without_a_restart(
    fault: LoseReply | CutReply, redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    enqueue(redis, "default", *numbered(3))
    lost = proxy.on(dispatching, fault)

    manager = rig.manager(rig.config(url=proxy.url, concurrency=2))
    lost.wait()
    wait_for(lambda: len(jobs.calls) == 3, 10)
    wait_for(lambda: manager.idle)

    assert sorted(jobs.calls) == [(0,), (1,), (2,)]
    assert queued(redis) == private(redis) == []


@pytest.mark.oracle("reliability:F9", "safety:R3")
@pytest.mark.parametrize("after", [0, 1, 4, 30], ids=lambda after: f"after {after} bytes")
def test_a_job_whose_blocking_claim_was_cut_runs_once(
    after: int, redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    cut = proxy.on(named("BLMOVE"), CutReply(after))
    manager = rig.manager(rig.config(url=proxy.url, fetch_block=5))
    wait_for(lambda: blocked(redis) == 1)

    enqueue(redis, "default", payload("work", "once"))
    cut.wait()
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert stays(lambda: jobs.calls == [("once",)], 0.2)
    assert queued(redis) == private(redis) == []


@pytest.mark.oracle("reliability:F9")
def test_a_claim_lost_beside_a_blocked_leader_is_found_too(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    gate = jobs.gated_job("slow")
    manager = rig.manager(rig.config(["other", "default"], url=proxy.url, fetch_block=5))
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: blocked(redis) == 2)

    proxy.black_hole("reply")  # so that the leader does not hear of its claim
    lost = proxy.on(dispatching, LoseReply())
    enqueue(redis, "other", payload("work", "for the leader"), payload("work", "for the freed thread"))
    gate.set()
    lost.wait()
    assert len(private(redis, "other")) == 2
    proxy.heal()

    wait_for(lambda: len(jobs.calls) == 3)
    wait_for(lambda: manager.idle)
    assert sorted(jobs.calls[1:]) == [("for the freed thread",), ("for the leader",)]


def test_equal_payloads_are_counted_when_a_lost_claim_is_looked_for(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    twin = payload(jid="twin")
    dispatcher = rig.dispatcher(rig.config(url=proxy.url, concurrency=3))
    enqueue(redis, "default", twin)
    take(dispatcher, 1)
    enqueue(redis, "default", twin)
    lost = proxy.on(dispatching, LoseReply())

    [again] = take(dispatcher, 1)

    assert lost.hits == 1
    assert again.raw == twin
    assert private(redis) == [twin, twin], "the one that is held and the one that was taken back"


def test_what_is_held_is_not_taken_for_lost(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    enqueue(redis, "default", *numbered(3))
    running, finished = take(dispatcher, 2)
    dispatcher.finish(finished, 1.0)
    proxy.on(dispatching, Answer("MISCONF cannot persist"))  # no claim was lost, yet an outage is suspected

    with caplog.at_level(logging.WARNING, "wurk"):
        [third] = take(dispatcher, 1)

    assert private(redis) == [third.raw, running.raw]
    assert not any("lost answer" in record.getMessage() for record in caplog.records)


@pytest.mark.oracle("reliability:F9")
def test_a_job_that_nobody_holds_is_found_without_any_error_in_time(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wurk_django.worker.dispatcher.RECONCILE_S", 0.2)
    jobs.job()
    dispatcher = rig.dispatcher()
    warm(redis, dispatcher, "default")
    redis.lpush(identity.private_list("default", 0), payload("work", "stray"))

    taking = rig.take_in_thread(dispatcher)

    work = taking.result()
    assert work is not None
    assert b"stray" in work.raw


@pytest.mark.oracle("reports:P02", "safety:R4")
def test_all_threads_work_again_after_redis_was_away(
    redis: redis_py.Redis,
    rig: Rig,
    proxy: Proxy,
    jobs: Recorder,
    one_attempt: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs.job()
    launcher = rig.launcher(rig.config(["a", "b"], 4, url=proxy.url))
    wait_for(lambda: blocked(redis) == 2)

    with caplog.at_level(logging.INFO, "wurk"):
        for _ in range(3):
            proxy.refuse = True
            proxy.reset_all()
            wait_for(lambda: any("fetching" in message for message in rig.messages()))
            time.sleep(0.25)
            reported = [message for message in rig.messages() if message.startswith("fetching")]
            proxy.refuse = False
            wait_for(lambda: any("Redis is back" in record.getMessage() for record in caplog.records))
            caplog.clear()
            rig.errors.clear()
            assert len(reported) == 1, "the first failure of an outage is told, the others only wait"
    for queue in "ab":
        enqueue(redis, queue, *numbered(50))
    redis.zadd("schedule", {payload("work", "later", queue="a"): 1})

    wait_for(lambda: len(jobs.calls) == 101)
    wait_for(lambda: launcher.idle)
    assert redis.exists(*redis.smembers("processes")) == 1, "the heartbeat is back as well"


@pytest.mark.oracle("safety:R7", "safety:R22")
def test_a_server_that_comes_back_empty_is_worked_for_at_once(server: RedisServer, rig: Rig, jobs: Recorder) -> None:
    jobs.job()
    gate = jobs.gated_job("slow")
    with server.client() as client:
        launcher = rig.launcher(rig.config(url=server.url))
        enqueue(client, "default", payload("slow"))
        wait_for(lambda: jobs.calls)

        server.restart(kill=True, empty=True)
        gate.set()
        enqueue(client, "default", *numbered(5))

        wait_for(lambda: len(jobs.calls) == 6, 10)
        wait_for(lambda: launcher.idle)
        wait_for(lambda: client.scard("processes") == 1)
        assert client.lrange("queue:default", 0, -1) == []


@pytest.mark.oracle("safety:R9", "safety:R12")
@pytest.mark.parametrize("code", ["READONLY", "MISCONF", "NOREPLICAS", "LOADING", "BUSY"])
def test_a_server_that_refuses_claims_for_a_while_is_waited_for(
    code: str, redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    refused = proxy.on(lambda command: dispatching(command) or command[0] == b"BLMOVE", Answer(f"{code} no"), times=3)
    rig.manager(rig.config(url=proxy.url))
    enqueue(redis, "default", payload("work", "once"))

    wait_for(lambda: jobs.calls)

    assert refused.hits == 3
    assert jobs.calls == [("once",)]


@pytest.mark.oracle("safety:R14")
def test_scripts_flushed_under_load_change_nothing(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job()
    jobs.failing_job(ValueError("boom"), "fails")
    manager = rig.manager(rig.config(concurrency=4))

    for number in range(40):
        enqueue(redis, "default", payload("work", number), payload("fails", number))
        redis.script_flush()
        wait_for(lambda number=number: redis.zcard("retry") == number + 1)

    wait_for(lambda: manager.idle)
    assert sorted(call for call in jobs.calls) == sorted([(number,) for number in range(40)] * 2)
    assert private(redis) == []


def test_a_connection_closed_by_the_server_while_idle_costs_no_job(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    rig.manager(rig.config(url=proxy.url, fetch_block=5))
    wait_for(lambda: blocked(redis) == 1)

    redis.client_kill_filter(_type="normal", skipme=True)
    enqueue(redis, "default", payload("work", "once"))

    wait_for(lambda: jobs.calls)
    assert jobs.calls == [("once",)]


@pytest.mark.oracle("safety:R15")
def test_an_unblocked_claim_is_made_again(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job()
    rig.manager(rig.config(fetch_block=5))
    wait_for(lambda: blocked(redis) == 1)
    for client in redis.client_list():
        redis.client_unblock(int(client["id"]), error=True)

    enqueue(redis, "default", payload("work", "once"))

    wait_for(lambda: jobs.calls)
    assert jobs.calls == [("once",)]


def test_a_job_that_came_just_when_the_line_was_cut_is_not_lost(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    manager = rig.manager(rig.config(["a", "b", "c"], url=proxy.url, fetch_block=5))
    wait_for(lambda: blocked(redis) == 3)
    proxy.on(named("BLMOVE"), After(lambda: None, deliver=False), times=None)

    with redis.pipeline(transaction=True) as pipe:
        for name in "abc":
            pipe.lpush(f"queue:{name}", payload("work", name))
        pipe.execute()
    time.sleep(0.1)
    proxy.clear()

    wait_for(lambda: len(jobs.calls) == 3)
    wait_for(lambda: manager.idle)
    assert sorted(jobs.calls) == [("a",), ("b",), ("c",)]
