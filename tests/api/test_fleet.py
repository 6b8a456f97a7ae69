"""Processes, running jobs, totals and deploy marks from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from typing import Any

import pytest
import redis as redis_py

from tests.api.conftest import payload
from wurk_django.api import Deploys, History, ProcessSet, Stats, WorkSet
from wurk_django.config import Config
from wurk_django.errors import WurkError


def beat(redis: redis_py.Redis, identity: str, info: dict[str, Any], **fields: Any) -> None:
    redis.sadd("processes", identity)
    given = {"info": json.dumps(info), "busy": 0, "beat": time.time(), "quiet": "false", **fields}
    redis.hset(identity, mapping=given)


def work(redis: redis_py.Redis, identity: str, thread: str, **row: Any) -> None:
    redis.hset(f"{identity}:work", thread, json.dumps(row))


@pytest.mark.oracle("core:A1")
def test_an_empty_redis_has_empty_totals(redis: redis_py.Redis, config: Config) -> None:
    stats = Stats(config)

    numbers = (
        stats.processed, stats.failed, stats.scheduled_size, stats.retry_size, stats.dead_size, stats.processes_size,
        stats.enqueued, stats.workers_size,
    )  # fmt: skip
    assert numbers == (0,) * 8
    assert stats.default_queue_latency == 0.0
    assert isinstance(stats.default_queue_latency, float)
    assert (stats.queues, list(ProcessSet(config)), list(WorkSet(config))) == ({}, [], [])
    assert redis.keys("*") == []


def test_totals_are_read(redis: redis_py.Redis, config: Config) -> None:
    redis.mset({"stat:processed": 5, "stat:failed": 2})
    for name, count in (("schedule", 1), ("retry", 2), ("dead", 3)):
        redis.zadd(name, {f"{number}": number for number in range(count)})
    redis.sadd("queues", "default")
    redis.lpush("queue:default", payload("a", enqueued_at=int(time.time() * 1000) - 60_000), "garbage")
    beat(redis, "h:1:a", {}, busy=4)

    stats = Stats(config)

    assert (stats.processed, stats.failed) == (5, 2)
    assert (stats.scheduled_size, stats.retry_size, stats.dead_size) == (1, 2, 3)
    assert (stats.processes_size, stats.workers_size, stats.enqueued) == (1, 4, 2)
    assert 55 < stats.default_queue_latency < 70


@pytest.mark.oracle("core:A2")
def test_a_reset_takes_the_totals_that_are_named(redis: redis_py.Redis, config: Config) -> None:
    redis.mset({"stat:processed": 5, "stat:failed": 10, "stat:failed:2012-12-26": 3})
    stats = Stats(config)

    stats.reset("failed", "junk")
    assert (stats.processed, stats.failed) == (5, 0)
    assert redis.keys("stat:*junk*") == []

    stats.reset()
    assert (stats.processed, stats.failed) == (0, 0)
    assert redis.get("stat:failed:2012-12-26") == b"3"
    stats.reset("junk")


@pytest.mark.oracle("core:A3")
def test_the_history_is_told_by_day_the_newest_first(redis: redis_py.Redis, config: Config) -> None:
    redis.mset({"stat:processed:2012-12-26": 6, "stat:processed:2012-12-25": 1, "stat:failed:2012-12-25": 4})

    history = History(2, date(2012, 12, 26), config)

    assert list(history.processed.items()) == [("2012-12-26", 6), ("2012-12-25", 1)]
    assert history.failed == {"2012-12-26": 0, "2012-12-25": 4}
    assert list(History(1, config=config).processed) == [datetime.now(UTC).date().isoformat()]
    for days in (0, -1, 1826):
        with pytest.raises(ValueError, match="from 1 to 1825"):
            History(days, config=config)


@pytest.mark.oracle("core:A4")
def test_queues_and_weights_of_a_process_are_those_of_its_capsules(redis: redis_py.Redis, config: Config) -> None:
    capsules = {"a": {"weights": {"foo": 1, "bar": 1}}, "b": {"weights": {"single": 0}}}
    beat(redis, "h:1:a", {"capsules": capsules, "queues": ["old"]})

    [process] = ProcessSet(config)

    assert process.queues == ["foo", "bar", "single"]
    assert process.weights == [{"foo": 1, "bar": 1}, {"single": 0}]


@pytest.mark.oracle("core:V3", "core:D22")
def test_a_process_of_sidekiq_seven_tells_everything_in_its_info(redis: redis_py.Redis, config: Config) -> None:
    info = {"hostname": "h", "pid": 1, "concurrency": 7, "queues": ["q"], "weights": [{"q": 2}], "started_at": 9.5}
    beat(redis, "h:1:a", {**info, "tag": "app", "labels": ["x", 5], "version": "7.3.9"}, quiet="true", rss="2048")

    process = ProcessSet(config)["h:1:a"]

    assert process
    assert (process.queues, process.weights, process.concurrency) == (["q"], [{"q": 2}], 7)
    assert (process.hostname, process.pid, process.tag, process.labels) == ("h", 1, "app", ["x"])
    assert (process.version, process.rss_kb, process.rtt_us, process.is_stopping) == ("7.3.9", 2048, 0, True)
    assert process.started_at == datetime.fromtimestamp(9.5, UTC)
    assert process.beat_at
    assert process["hostname"] == "h"
    assert process["nothing"] is None


def test_the_fields_of_the_hash_win_over_the_info(redis: redis_py.Redis, config: Config) -> None:
    beat(redis, "h:1:a", {"concurrency": 7}, concurrency=3, busy=2, rss=100, rtt_us=456)
    beat(redis, "h:2:b", {}, concurrency=4, rss=50)
    redis.sadd("processes", "lapsed")
    redis.set("dear-leader", "h:2:b")
    fleet = ProcessSet(config)

    first, second = fleet
    assert (first.concurrency, first.busy, first.rss_kb, first.rtt_us) == (3, 2, 100, 456)
    assert (fleet.size, fleet.total_concurrency, fleet.total_rss_kb) == (3, 7, 150)
    assert fleet.leader == "h:2:b"
    assert (first.is_leader, second.is_leader) == (False, True)
    assert (fleet["lapsed"], fleet["unknown"]) == (None, None)
    assert redis.scard("processes") == 3, "reading never writes"
    assert fleet.cleanup() == 1
    assert fleet.size == 2


def test_a_process_that_is_told_of_no_member_is_none(redis: redis_py.Redis, config: Config) -> None:
    beat(redis, "h:1:a", {})
    redis.srem("processes", "h:1:a")

    assert ProcessSet(config)["h:1:a"] is None


def test_signals_reach_a_process_oldest_first(redis: redis_py.Redis, config: Config) -> None:
    beat(redis, "h:1:a", {})
    [process] = ProcessSet(config)

    process.quiet()
    process.dump_threads()
    process.stop()

    assert redis.rpop("h:1:a-signals", 9) == [b"TSTP", b"TTIN", b"TERM"]
    process.stop()
    assert 0 < redis.ttl("h:1:a-signals") <= 60


def test_an_embedded_process_is_left_to_its_host(redis: redis_py.Redis, config: Config) -> None:
    beat(redis, "h:1:a", {"embedded": True})
    [process] = ProcessSet(config)

    for act in (process.quiet, process.stop):
        with pytest.raises(WurkError, match="lives in another program"):
            act()
    assert not redis.exists("h:1:a-signals")


@pytest.mark.oracle("core:A5")
def test_running_jobs_come_the_longest_first(redis: redis_py.Redis, config: Config) -> None:
    now = int(time.time())
    beat(redis, "h:1:a", {}, busy=1)
    beat(redis, "h:2:b", {}, busy=1)
    work(redis, "h:1:a", "t1", queue="q", run_at=now - 10, payload=payload("young").decode())
    work(redis, "h:2:b", "t2", queue="q", run_at=now - 100, payload={"jid": "old", "class": "A"})

    first, second = WorkSet(config)

    assert (first.job.jid, first.process_id, first.thread_id, first.queue) == ("old", "h:2:b", "t2", "q")
    assert first.run_at == datetime.fromtimestamp(now - 100, UTC)
    assert (second.job.jid, second.payload) == ("young", payload("young"))
    assert WorkSet(config).size == 2
    found = WorkSet(config).find_work("young")
    assert found
    assert found.thread_id == "t1"
    assert WorkSet(config).find_work("you") is None


def test_rows_that_are_no_work_are_passed_over(redis: redis_py.Redis, config: Config) -> None:
    for identity in ("h:1:a", "h:2:b", "h:3:c"):
        beat(redis, identity, {})
    redis.hset("h:1:a:work", mapping={"empty": "", "garbage": "{", "list": "[1]", "bare": "{}"})
    redis.set("h:2:b:work", "text")
    work(redis, "h:3:c", "t", queue=5, run_at="soon", payload=7)

    works = list(WorkSet(config))

    assert [(each.thread_id, each.queue, each.run_at_s, each.payload) for each in works] == [
        ("bare", None, 0.0, b""), ("t", None, 0.0, b""),
    ]  # fmt: skip


def test_deploys_are_marked_once_a_minute(redis: redis_py.Redis, config: Config) -> None:
    deploys, at = Deploys(config), datetime(2026, 5, 29, 10, 15, 30, tzinfo=UTC)

    assert deploys.mark("first", at) == "2026-05-29T10:15:00Z"
    assert deploys.mark("first", at) is None

    assert deploys.fetch(date(2026, 5, 29)) == {"2026-05-29T10:15:00Z": "first"}
    assert deploys.fetch() == {}


def test_nothing_is_asked_of_redis_before_it_is_needed() -> None:
    code = (
        "from wurk_django.api import *; from wurk_django.config import Config;"
        "from wurk_django.connection import RedisOptions;"
        "c = Config(redis=RedisOptions('redis://127.0.0.1:1')); c.on_redis_retry = None;"
        "Queue('q', c); RetrySet(c); ScheduledSet(c); DeadSet(c); ProcessSet(c); WorkSet(c); Deploys(c);"
        "import sys; assert 'django' not in sys.modules; assert 'wurk_django.worker' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
