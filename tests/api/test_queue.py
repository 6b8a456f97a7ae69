"""One queue from outside: its jobs, while they move; clearing, deleting, and the queues in order of size."""

from __future__ import annotations

import time

import pytest
import redis as redis_py

from tests.api.conftest import payload
from wurk_django.api import Queue, Stats
from wurk_django.config import Config


def push(redis: redis_py.Redis, name: str, count: int) -> list[bytes]:
    """Jobs in the order in which they will run."""
    raws = [payload(f"{name}{number}") for number in range(count)]
    redis.lpush(f"queue:{name}", *raws)
    redis.sadd("queues", name)
    return raws


@pytest.mark.oracle("core:Q4")
def test_every_job_is_met_when_each_is_deleted_on_the_way(redis: redis_py.Redis, config: Config) -> None:
    raws = push(redis, "default", 120)
    met = []

    for job in Queue("default", config):
        met.append(job.value)
        assert job.delete()
        assert not job.delete()

    assert met == raws[::-1]
    assert Queue("default", config).size == 0


def test_every_job_is_met_while_others_are_pushed_and_deleted(redis: redis_py.Redis, config: Config) -> None:
    raws = push(redis, "q", 300)
    met = []

    for number, job in enumerate(Queue("q", config)):
        met.append(job.value)
        if number < 200 and number % 2:
            redis.lrem("queue:q", 1, job.value)
        redis.lpush("queue:q", f"new {number}")
        if number > 2000:
            break

    assert set(raws) <= set(met)


@pytest.mark.oracle("core:Q5")
def test_a_queue_is_cleared_with_its_name_and_stays_paused(redis: redis_py.Redis, config: Config) -> None:
    push(redis, "low", 3)
    low = Queue("low", config)
    low.pause()

    assert low.clear()

    assert (redis.exists("queue:low"), redis.smembers("queues")) == (0, set())
    assert low.is_paused
    assert low.unpause()
    assert not low.unpause()


@pytest.mark.oracle("core:Q6")
def test_queues_are_told_of_the_largest_first(redis: redis_py.Redis, config: Config) -> None:
    push(redis, "foo", 1)
    push(redis, "bar", 3)
    push(redis, "baz", 2)
    redis.sadd("paused", "bar")

    summaries = Stats(config).queue_summaries

    assert [(each.name, each.size, each.paused) for each in summaries] == [
        ("bar", 3, True), ("baz", 2, False), ("foo", 1, False),
    ]  # fmt: skip
    assert list(Stats(config).queues.items()) == [("bar", 3), ("baz", 2), ("foo", 1)]
    assert Stats(config).enqueued == 6
    assert [queue.name for queue in Queue.all(config)] == ["bar", "baz", "foo"]


@pytest.mark.oracle("core:D5")
@pytest.mark.parametrize(("age_s", "expected"), [(30, 30.0), (-500, 0.0), (0, 0.0)])
def test_the_latency_is_the_age_of_the_next_job_and_never_negative(
    age_s: float, expected: float, redis: redis_py.Redis, config: Config
) -> None:
    now_ms = int(time.time() * 1000)
    redis.rpush("queue:default", payload("b"), payload("a", enqueued_at=int(now_ms - age_s * 1000)))

    assert abs(Queue(config=config).latency - expected) < 5
    assert Queue("none", config).latency == 0.0


def test_a_job_is_found_by_its_jid(redis: redis_py.Redis, config: Config) -> None:
    raws = push(redis, "q", 120)

    found = Queue("q", config).find_job("q7")

    assert found
    assert (found.value, found.queue) == (raws[7], "q")
    assert Queue("q", config).find_job("q") is None


def test_pages_go_from_either_end(redis: redis_py.Redis, config: Config) -> None:
    raws = push(redis, "q", 5)
    q = Queue("q", config)

    number, total, jobs = q.page(1, 2)
    assert (number, total, [job.value for job in jobs]) == (1, 5, [raws[4], raws[3]])
    assert [job.value for job in q.page(3, 2)[2]] == [raws[0]]
    assert [job.value for job in q.page(1, 2, oldest_first=True)[2]] == [raws[0], raws[1]]
    assert [job.value for job in q.page(3, 2, oldest_first=True)[2]] == [raws[4]]
    assert q.page(9, 2)[2] == []
    assert Queue("none", config).page(4) == (1, 0, [])


@pytest.mark.oracle("safety:S-11")
def test_a_job_is_deleted_by_its_exact_bytes(redis: redis_py.Redis, config: Config) -> None:
    odd, plain = b'{"jid" : "a", "args":[1.50]}', b'{"jid":"a","args":[1.5]}'
    redis.rpush("queue:q", plain, odd, plain)

    [job] = [job for job in Queue("q", config) if job.value == odd]
    assert job.delete()

    assert redis.lrange("queue:q", 0, -1) == [plain, plain]


@pytest.mark.oracle("safety:S-13")
def test_a_queue_of_an_odd_name_is_read_and_cleared(redis: redis_py.Redis, config: Config) -> None:
    name = "odd|name\n" + "x" * 300
    push(redis, name, 2)

    assert [queue.name for queue in Queue.all(config)] == [name]
    assert [job.delete() for job in Queue(name, config)] == [True, True]
    assert Queue(name, config).clear()
    assert redis.keys("*") == []
