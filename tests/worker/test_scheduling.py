"""The poller: how often it looks, that it moves everything that is due, and what stops it."""

from __future__ import annotations

import json
import random
import statistics
import time

import pytest
import redis as redis_py

from tests.support.faults import After, Answer, Delay, LoseRequest, script
from tests.support.proxy import Proxy
from tests.worker.rig import Recorder, Rig, payload, stays, wait_for
from wurk_django import clock
from wurk_django.client import Client
from wurk_django.middleware import CallNext
from wurk_django.storage import sorted_sets
from wurk_django.worker.scheduler import Scheduler

promoting = script(sorted_sets._promote.sha.decode())


def due(redis: redis_py.Redis, name: str, count: int, at: float = 1.0, queue: str = "q") -> None:
    for start in range(0, count, 500):
        redis.zadd(name, {payload("work", n, queue=queue): at for n in range(start, min(start + 500, count))})


def waits(scheduler: Scheduler, samples: int = 500) -> list[float]:
    return [scheduler.wait_s() for _ in range(samples)]


@pytest.mark.oracle("core:S1")
def test_what_is_due_in_both_sets_moves_and_the_rest_stays(redis: redis_py.Redis, rig: Rig) -> None:
    now = time.time()
    for name in ("retry", "schedule"):
        for seconds in (-60, -50, 60):
            member = payload("work", name, seconds, queue=f"{name}_{seconds}", created_at=5, enqueued_at=7)
            redis.zadd(name, {member: now + seconds})

    assert Scheduler(rig.config()).enqueue_due() == 4

    assert sorted(redis.smembers("queues")) == [b"retry_-50", b"retry_-60", b"schedule_-50", b"schedule_-60"]
    for queue in redis.smembers("queues"):
        [raw] = redis.lrange(b"queue:" + queue, 0, -1)
        job = json.loads(raw)
        assert job["created_at"] == 5
        assert abs(job["enqueued_at"] / 1000 - now) < 10
    assert (redis.zcard("retry"), redis.zcard("schedule")) == (1, 1)


@pytest.mark.oracle("core:S2")
def test_a_stopped_scheduler_moves_nothing(redis: redis_py.Redis, rig: Rig) -> None:
    due(redis, "schedule", 3)
    scheduler = Scheduler(rig.config())
    scheduler.stop()

    assert scheduler.enqueue_due() == 0
    assert redis.zcard("schedule") == 3


@pytest.mark.oracle("core:S3", "core:D8")
def test_promotion_does_not_run_client_middleware(redis: redis_py.Redis, rig: Rig) -> None:
    class DropsEven:
        def call(self, _class: object, job: dict[str, list[int]], _queue: str, _redis: object, go: CallNext) -> object:
            return go() if job["args"][0] % 2 else None

    due(redis, "schedule", 4)
    config = rig.config()
    config.client_middleware.add(DropsEven)

    assert Scheduler(config).enqueue_due() == 4
    assert redis.llen("queue:q") == 4


@pytest.mark.oracle("core:S4")
def test_a_fixed_average_is_kept_whatever_the_number_of_processes(redis: redis_py.Redis, rig: Rig) -> None:
    random.seed(1)
    redis.sadd("processes", "one")

    samples = waits(Scheduler(rig.config(poll_interval_average=10)))

    assert all(5 <= sample <= 15 for sample in samples)
    assert statistics.mean(samples) == pytest.approx(10, abs=0.51)


@pytest.mark.oracle("core:S5")
@pytest.mark.parametrize(("processes", "low", "high", "mean"), [(10, 0, 200, 100), (3, 15, 45, 30)])
def test_the_fleet_as_a_whole_polls_at_the_interval(
    processes: int, low: int, high: int, mean: int, redis: redis_py.Redis, rig: Rig
) -> None:
    random.seed(2)
    redis.sadd("processes", *range(processes))

    samples = waits(Scheduler(rig.config(poll_interval=10)), 1000)

    assert all(low <= sample <= high for sample in samples)
    assert statistics.mean(samples) == pytest.approx(mean, rel=0.1)
    assert max(samples) - min(samples) > 0.9 * (high - low), "the whole range is used"


@pytest.mark.oracle("core:S6")
def test_the_interval_grows_with_the_number_of_processes(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.5)
    redis.sadd("processes", *range(3))

    assert Scheduler(rig.config(poll_interval=10)).wait_s() == 30


def test_the_first_wait_spreads_a_fleet_that_starts_at_once(rig: Rig) -> None:
    random.seed(3)

    usual = [Scheduler(rig.config(scheduler_initial_wait=None)).first_wait_s() for _ in range(50)]
    fixed = Scheduler(rig.config(scheduler_initial_wait=None, poll_interval_average=1))
    given = Scheduler(rig.config(scheduler_initial_wait=3))

    assert all(10 <= wait <= 15 for wait in usual)
    assert len(set(usual)) > 10
    assert 0 <= fixed.first_wait_s() <= 5
    assert given.first_wait_s() == 3


def test_without_redis_the_next_look_comes_in_five_seconds(rig: Rig, proxy: Proxy, one_attempt: None) -> None:
    scheduler = Scheduler(rig.config(url=proxy.url))
    proxy.refuse = True

    assert scheduler.wait_s() == 5


@pytest.mark.oracle("reliability:SC5")
def test_a_backlog_is_moved_in_calls_of_five_hundred(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    due(redis, "schedule", 1200)

    assert Scheduler(rig.config(url=proxy.url)).enqueue_due() == 1200

    calls = [command for command in list(proxy.commands) if promoting(command) and b"schedule" in command]
    assert len(calls) == 3
    assert redis.llen("queue:q") == 1200


@pytest.mark.oracle("reliability:SC6")
def test_a_stop_ends_a_backlog_after_the_current_call(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    due(redis, "schedule", 1200)
    scheduler = Scheduler(rig.config(url=proxy.url))
    proxy.on(lambda command: promoting(command) and b"schedule" in command, After(scheduler.stop))

    assert scheduler.enqueue_due() == 500

    assert (redis.llen("queue:q"), redis.zcard("schedule")) == (500, 700)


def test_a_stop_does_not_wait_for_a_call_longer_than_its_answer_takes(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    due(redis, "schedule", 1200)
    scheduler = Scheduler(rig.config(url=proxy.url, scheduler_initial_wait=0))
    slow = proxy.on(promoting, Delay(reply_s=0.3))
    scheduler.start()
    wait_for(lambda: slow.hits)

    started = time.monotonic()
    scheduler.stop()

    assert time.monotonic() - started < 2
    assert stays(lambda: redis.zcard("schedule") >= 700, 0.1)


@pytest.mark.oracle("reliability:SC7", "safety:R23")
def test_jobs_for_a_queue_of_a_wrong_type_wait_and_are_told_once_a_minute(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.set("queue:x", "text")
    due(redis, "schedule", 700, at=1, queue="x")
    due(redis, "schedule", 10, at=2, queue="y")
    due(redis, "retry", 1, at=1, queue="x")
    scheduler = Scheduler(rig.config())

    assert scheduler.enqueue_due() == 10
    assert scheduler.enqueue_due() == 0

    assert redis.llen("queue:y") == 10
    assert (redis.zcard("schedule"), redis.zcard("retry")) == (700, 1)
    assert len(rig.errors) == 1
    assert "queue:x has a wrong type" in rig.messages()[0]

    later = time.monotonic() + 61
    monkeypatch.setattr("wurk_django.worker.scheduler.monotonic", lambda: later)
    redis.delete("queue:x")
    redis.zadd("schedule", {payload(queue="z"): 1})
    redis.set("queue:z", "text")
    assert scheduler.enqueue_due() == 701
    assert len(rig.errors) == 2


@pytest.mark.parametrize("fault", [Answer("MISCONF no"), LoseRequest()], ids=["refused", "cut"])
def test_an_error_with_one_set_is_told_and_the_other_has_its_turn(
    fault: Answer | LoseRequest, redis: redis_py.Redis, rig: Rig, proxy: Proxy, one_attempt: None
) -> None:
    due(redis, "retry", 1)
    due(redis, "schedule", 1)
    proxy.on(lambda command: promoting(command) and b"retry" in command, fault)
    scheduler = Scheduler(rig.config(url=proxy.url))

    assert scheduler.enqueue_due() == 1

    assert (redis.zcard("retry"), redis.zcard("schedule")) == (1, 0)
    assert rig.messages()[0].startswith("promoting due jobs of retry: ")
    assert scheduler.enqueue_due() == 1


@pytest.mark.oracle("reliability:SC9", "safety:C4")
@pytest.mark.parametrize("days", [1, -1])
def test_a_wrong_wall_clock_of_the_worker_promotes_nothing_early_and_nothing_late(
    days: int, redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time()
    redis.zadd("schedule", {payload(queue="early"): real + 3600, payload(queue="due"): real - 1})
    monkeypatch.setattr(time, "time", lambda: real + days * 86_400)
    monkeypatch.setattr(time, "time_ns", lambda: int((real + days * 86_400) * 1e9))
    assert abs(clock.now_s() - real) > 80_000

    assert Scheduler(rig.config()).enqueue_due() == 1

    assert redis.smembers("queues") == {b"due"}
    stamp = json.loads(redis.lindex("queue:due", 0))["enqueued_at"]
    assert abs(stamp / 1000 - real) < 10, "stamped by the clock of Redis"


def test_a_scheduled_job_runs_when_its_time_has_come(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    started: list[float] = []
    jobs.job(act=lambda *_: started.append(time.time()))
    config = rig.config()
    rig.launcher(config)
    at = time.time() + 0.3

    Client(config).push({"class": "work", "args": [], "at": at})

    wait_for(lambda: started)
    assert 0 <= started[0] - at < 1


def test_a_quiet_worker_leaves_the_promoting_to_others(redis: redis_py.Redis, rig: Rig) -> None:
    launcher = rig.launcher()
    launcher.quiet()
    due(redis, "schedule", 1)

    assert stays(lambda: redis.zcard("schedule") == 1, 0.3)


def test_two_schedulers_at_once_move_each_job_once(redis: redis_py.Redis, rig: Rig) -> None:
    due(redis, "schedule", 3000)
    schedulers = [Scheduler(rig.config(scheduler_initial_wait=0)) for _ in range(2)]

    for scheduler in schedulers:
        scheduler.start()
    wait_for(lambda: redis.zcard("schedule") == 0, 15)
    for scheduler in schedulers:
        scheduler.stop()

    numbers = [json.loads(raw)["args"][0] for raw in redis.lrange("queue:q", 0, -1)]
    assert sorted(numbers) == list(range(3000))
