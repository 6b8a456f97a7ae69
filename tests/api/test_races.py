"""People press buttons while workers claim, schedule and reap the same jobs: exactly one of them gets each."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable

import pytest
import redis as redis_py

from tests.api.conftest import Fill, payload
from wurk_django.api import Queue, RetrySet
from wurk_django.config import Config, Options
from wurk_django.storage import orphans, queues, sorted_sets
from wurk_django.storage.queues import Lane

RACES = int(os.environ.get("WURK_RACES", "1000"))
LANE = Lane("default", "queue:default", "queue:default|host|1|nonce|0")


def at_once(*acts: Callable[[], int]) -> list[int]:
    """Run these in threads; what each of them got."""
    gate, got = threading.Barrier(len(acts)), [0] * len(acts)

    def run(place: int) -> None:
        gate.wait(10)
        got[place] = acts[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return got


def places(redis: redis_py.Redis) -> Counter[str]:
    """How often each jid lies anywhere."""
    raws = [raw for key in redis.keys("queue:*") for raw in redis.lrange(key, 0, -1)]
    raws += [raw for name in ("retry", "dead", "schedule") for raw in redis.zrange(name, 0, -1)]
    return Counter(json.loads(raw)["jid"] for raw in raws)


@pytest.mark.oracle("safety:C13")
def test_a_worker_claims_what_a_person_deletes(redis: redis_py.Redis, config: Config) -> None:
    raws = [payload(f"jid{number:06}") for number in range(RACES)]
    redis.lpush("queue:default", *raws)
    jobs = list(Queue("default", config))[::-1]

    def claim() -> int:
        return sum(len(queues.dispatch(config.redis, [], [LANE], [1], 1, Options())) for _ in range(RACES))

    deleted, claimed = at_once(lambda: sum(job.delete() for job in jobs), claim)

    assert deleted + claimed == RACES
    assert redis.llen(LANE.private) == claimed
    assert redis.llen("queue:default") == 0


@pytest.mark.oracle("safety:C13")
def test_a_reaper_brings_back_what_a_person_deletes(redis: redis_py.Redis, config: Config) -> None:
    raws = [payload(f"jid{number:06}") for number in range(RACES)]
    redis.rpush(LANE.private, *raws)
    reaped = threading.Event()

    def reap() -> int:
        while payloads := orphans.newest(config.redis, LANE.private)[:7]:
            orphans.drain(config.redis, LANE.private, "default", None, payloads, [""] * len(payloads), 100)
        reaped.set()
        return 0

    def delete() -> int:
        count = 0
        while not reaped.is_set():
            count += sum(job.delete() for job in Queue("default", config))
        return count

    _, deleted = at_once(reap, delete)

    assert redis.llen(LANE.private) == 0
    assert deleted + redis.llen("queue:default") == RACES
    assert set(places(redis).values()) <= {1}


@pytest.mark.oracle("safety:C13", "core:D12")
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_of_four_buttons_and_a_scheduler_one_gets_each_entry(
    step: float, redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    raws = fill("retry", RACES, step=step, retry_count=1)
    entries = [list(RetrySet(config)) for _ in range(4)]

    def promote() -> int:
        count = 0
        while handled := sorted_sets.promote_due(config.redis, "retry", Options(), limit=3).handled:
            count += handled
        return count

    got = at_once(
        lambda: sum(entry.retry() for entry in entries[0]),
        lambda: sum(entry.kill() for entry in entries[1][::-1]),
        lambda: sum(entry.delete() for entry in entries[2]),
        lambda: sum(entry.add_to_queue() for entry in entries[3][::-1]),
        promote,
    )

    assert sum(got) == len(raws)
    assert redis.zcard("dead") == got[1]
    assert redis.llen("queue:default") == got[0] + got[3] + got[4]
    assert set(places(redis).values()) <= {1}


@pytest.mark.oracle("safety:C13")
def test_bulk_operations_and_buttons_share_a_set(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", RACES, step=0.0, failed_at=1)
    entries = list(RetrySet(config))

    got = at_once(
        lambda: RetrySet(config).retry_all().done,
        lambda: RetrySet(config).kill_all().done,
        lambda: sum(entry.delete() for entry in entries),
    )

    assert sum(got) == RACES
    assert (redis.llen("queue:default"), redis.zcard("dead"), redis.zcard("retry")) == (got[0], got[1], 0)
    assert set(places(redis).values()) <= {1}


@pytest.mark.oracle("safety:C13")
def test_a_job_that_is_rescheduled_while_it_is_promoted_stays_gone(
    redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    fill("retry", RACES)
    entries = list(RetrySet(config))

    def promote() -> int:
        while sorted_sets.promote_due(config.redis, "retry", Options(), limit=3).handled:
            pass
        return redis.llen("queue:default")

    at_once(lambda: sum(entry.reschedule(4e9) for entry in entries), promote)

    assert set(places(redis).values()) == {1}
    assert len(places(redis)) == RACES
