"""Blocking claims, jobs claimed ahead, and threads that are busy while others wait."""

from __future__ import annotations

import statistics
import time

import pytest
import redis as redis_py

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
    raws,
    stays,
    take,
    wait_for,
    warm,
)

SOON_S = 0.25  # "within 50 ms", with room for a busy machine


@pytest.mark.oracle("reliability:F14", "safety:R11")
def test_a_full_redis_hands_out_its_backlog_and_takes_acknowledgements(
    full_server: redis_py.Redis, own_server: RedisServer, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    enqueue(full_server, "default", *numbered(300))
    full_server.config_set("maxmemory", 1)
    manager = rig.manager(rig.config(["default", "other"], 4, url=own_server.url))

    wait_for(lambda: len(jobs.calls) == 300)
    wait_for(lambda: manager.idle)

    assert queued(full_server) == private(full_server) == []
    assert stays(lambda: not rig.errors, 0.6), rig.messages()

    full_server.config_set("maxmemory", 0)
    enqueue(full_server, "default", payload())
    wait_for(lambda: len(jobs.calls) == 301, 2)


@pytest.mark.oracle("reliability:F15")
def test_short_jobs_claimed_behind_a_long_one_are_given_back_and_run_elsewhere_in_order(
    redis: redis_py.Redis, rig: Rig
) -> None:
    config = rig.config(concurrency=1)
    dispatcher = rig.dispatcher(config, tended=True)
    warm(redis, dispatcher, "default", job_s=0.0002)
    long, *short = numbered(6)
    enqueue(redis, "default", long, *short)

    [work] = take(dispatcher, 1)
    claimed_at = time.monotonic()
    assert len(private(redis)) > 1, "claimed ahead"
    wait_for(lambda: private(redis) == [long], 1)
    given_back_s = time.monotonic() - claimed_at

    assert given_back_s < SOON_S
    elsewhere = rig.dispatcher(config, index=1)
    assert raws(take(elsewhere, 5)) == short
    dispatcher.finish(work, 60)


def test_a_job_that_takes_two_milliseconds_or_more_is_not_claimed_ahead(redis: redis_py.Redis, rig: Rig) -> None:
    dispatcher = rig.dispatcher(rig.config(concurrency=1))
    warm(redis, dispatcher, "default", job_s=0.0021)
    enqueue(redis, "default", *numbered(5))

    take(dispatcher, 1)

    assert len(private(redis)) == 1


@pytest.mark.oracle("reliability:F16")
def test_an_acknowledgement_does_not_wait_for_a_leader_that_blocks(redis: redis_py.Redis, rig: Rig) -> None:
    dispatcher = rig.dispatcher(rig.config(concurrency=2, fetch_block=5), tended=True)
    enqueue(redis, "default", payload())
    [work] = take(dispatcher, 1)
    rig.take_in_thread(dispatcher)
    wait_for(lambda: blocked(redis) == 1)

    dispatcher.finish(work, 1.0)
    finished_at = time.monotonic()
    rig.take_in_thread(dispatcher)
    wait_for(lambda: private(redis) == [], 2)

    assert time.monotonic() - finished_at < SOON_S


def test_an_acknowledgement_is_sent_also_when_no_thread_comes_back_for_work(redis: redis_py.Redis, rig: Rig) -> None:
    dispatcher = rig.dispatcher(tended=True)
    enqueue(redis, "default", payload())
    [work] = take(dispatcher, 1)

    dispatcher.finish(work, 1.0)
    finished_at = time.monotonic()
    wait_for(lambda: private(redis) == [], 2)

    assert time.monotonic() - finished_at < SOON_S


@pytest.mark.oracle("reliability:F18")
@pytest.mark.parametrize(
    ("count", "limit_s", "samples"),
    [(8, 0.02, 30), (40, 0.15, 9)],  # 8 queues: 41 ms when no more than the idle threads were covered
    ids=["all are waited on", "eight are waited on"],
)
def test_a_job_on_the_last_of_many_idle_queues_starts_at_once(
    count: int, limit_s: float, samples: int, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    started: list[float] = []
    jobs.job(act=lambda *_: started.append(time.monotonic()))
    rig.manager(rig.config([f"q{number}" for number in range(count)], 10))
    wait_for(lambda: blocked(redis) == 8)
    delays: list[float] = []

    for number in range(samples):
        raw = payload()
        pushed_at = time.monotonic()
        redis.lpush(f"queue:q{count - 1}", raw)
        wait_for(lambda number=number: len(started) > number)
        delays.append(started[number] - pushed_at)

    assert statistics.median(delays) < limit_s, delays


@pytest.mark.oracle("reliability:F19")
def test_one_idle_thread_takes_one_of_three_jobs_and_the_others_are_free_for_another_process(
    redis: redis_py.Redis, rig: Rig
) -> None:
    dispatcher = rig.dispatcher(rig.config(["a", "b", "c"], 1, fetch_block=5), tended=True)
    taking = rig.take_in_thread(dispatcher)
    wait_for(lambda: blocked(redis) == 3)
    jobs = {name: payload("work", name) for name in "abc"}

    with redis.pipeline(transaction=True) as pipe:
        for name, raw in jobs.items():
            pipe.lpush(f"queue:{name}", raw)
        pipe.execute()
    landed_at = time.monotonic()
    work = taking.result()
    assert work is not None
    others = [name for name in jobs if name != work.lane.name]
    wait_for(lambda: all(queued(redis, name) == [jobs[name]] for name in others), 1)

    assert time.monotonic() - landed_at < SOON_S
    assert private(redis, work.lane.name) == [work.raw]
    assert all(private(redis, name) == [] for name in others)
    assert blocked(redis) == 0, "no wait is open while no thread is idle"


def test_a_wait_ends_when_the_last_idle_thread_has_a_job(redis: redis_py.Redis, rig: Rig) -> None:
    dispatcher = rig.dispatcher(rig.config(["a", "b"], 1, fetch_block=5))
    taking = rig.take_in_thread(dispatcher)
    wait_for(lambda: blocked(redis) == 2)
    enqueue(redis, "a", payload())
    assert taking.result() is not None

    late = payload()
    enqueue(redis, "b", late)

    assert queued(redis, "b") == [late]


@pytest.mark.oracle("reliability:A2")
def test_the_last_acknowledgement_reaches_redis_before_the_dispatcher_blocks(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    dispatcher = rig.dispatcher(rig.config(url=proxy.url, fetch_block=5))
    raw = payload()
    enqueue(redis, "default", raw)
    [work] = take(dispatcher, 1)
    proxy.clear()
    dispatcher.finish(work, 1.0)

    rig.take_in_thread(dispatcher)
    wait_for(lambda: blocked(redis) == 1)

    commands = [command for command in list(proxy.commands) if command[0] in (b"EVALSHA", b"BLMOVE")]
    assert [command.name for command in commands] == ["EVALSHA", "BLMOVE"]
    assert raw in commands[0]
    assert private(redis) == []


@pytest.mark.oracle("reliability:A1")
def test_an_acknowledgement_rides_on_the_next_claim(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    warm(redis, dispatcher, "default")
    first, second = numbered(2)
    enqueue(redis, "default", first, second)
    [work] = take(dispatcher, 1)
    proxy.clear()

    dispatcher.finish(work, 1.0)
    take(dispatcher, 1)

    assert proxy.round_trips == 1
    assert private(redis) == [second]


def test_jobs_that_were_claimed_and_not_started_go_back_when_the_process_goes_quiet(
    redis: redis_py.Redis, rig: Rig
) -> None:
    dispatcher = rig.dispatcher()
    warm(redis, dispatcher, "default", job_s=0.0001)
    waiting = numbered(6)
    enqueue(redis, "default", *waiting)
    [work] = take(dispatcher, 1)

    dispatcher.quiet()

    assert queued(redis) == waiting[1:], "the oldest is next, as before"
    assert private(redis) == [work.raw]
    assert dispatcher.take() is None
