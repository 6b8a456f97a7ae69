"""`manage.py wurk status`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
import redis as redis_py

Wurk = Callable[..., str]


def fill(redis: redis_py.Redis) -> None:
    """Two processes, one of them a Ruby one of an older version; two queues; jobs in every set."""
    redis.sadd("processes", "app1:12:aaa", "app2:34:bbb", "gone:56:ccc")
    info = {"tag": "shop", "embedded": False, "capsules": {"default": {"weights": {"high": 3, "low": 1}}}}
    redis.hset(
        "app1:12:aaa",
        mapping={
            "info": json.dumps(info),
            "busy": 2,
            "concurrency": 5,
            "beat": time.time() - 3,
            "quiet": "true",
            "rss": 51200,
        },
    )
    older = {"concurrency": 7, "queues": ["default"], "identity": "app2:34:bbb"}
    redis.hset("app2:34:bbb", mapping={"info": json.dumps(older), "busy": 0, "beat": time.time() - 45})
    redis.set("dear-leader", "app2:34:bbb")
    redis.sadd("queues", "high", "low")
    redis.sadd("paused", "low")
    redis.lpush("queue:low", json.dumps({"enqueued_at": int((time.time() - 90) * 1000)}), "{}")
    redis.lpush("queue:high", "not JSON")
    redis.zadd("retry", {"a": 1, "b": 2})
    redis.zadd("dead", {"c": 3})
    redis.mset({"stat:processed": 1234, "stat:failed": 5})


@pytest.mark.oracle("core:D22")
def test_json_tells_everything_and_ends_with_zero(redis: redis_py.Redis, wurk: Wurk) -> None:
    fill(redis)

    found = json.loads(wurk("status", "--json"))

    assert [found[name] for name in ("processed", "failed", "leader")] == [1234, 5, "app2:34:bbb"]
    assert found["sets"] == {"schedule": 0, "retry": 2, "dead": 1}
    low, high = found["queues"]
    assert 90 <= low.pop("latency_s") < 100
    assert low == {"name": "low", "size": 2, "paused": True}
    assert high == {"name": "high", "size": 1, "latency_s": 0.0, "paused": False}
    first, second = found["processes"]
    assert 3 <= first.pop("beat_age_s") < 10
    assert first == {
        "identity": "app1:12:aaa", "tag": "shop", "queues": ["high", "low"], "busy": 2, "concurrency": 5,
        "rss_kb": 51200, "quiet": True,
    }  # fmt: skip
    assert (second["identity"], second["concurrency"], second["queues"]) == ("app2:34:bbb", 7, ["default"])


def test_the_tables_are_for_people(redis: redis_py.Redis, wurk: Wurk) -> None:
    fill(redis)

    lines = [line.split() for line in wurk("status").splitlines()]

    assert ["process", "busy", "memory", "beat", "state", "queues"] in lines
    [first] = [line for line in lines if line[:1] == ["app1:12:aaa"]]
    assert first[:4] == ["app1:12:aaa", "2/5", "50", "MB"]
    assert first[-3:] == ["quiet", "high,", "low"]
    [second] = [line for line in lines if line[:1] == ["app2:34:bbb"]]
    assert second[-3:] == ["leader", "stale", "default"]
    assert [line for line in lines if line[:2] == ["low", "2"] and line[-1] == "paused"]
    assert ["retry", "2"] in lines
    assert ["processed", "1234,", "failed", "5"] in lines


@pytest.mark.oracle("core:D5")
def test_a_job_from_the_future_and_one_without_a_time_have_waited_for_nothing(
    redis: redis_py.Redis, wurk: Wurk
) -> None:
    redis.sadd("queues", "early", "timeless", "created")
    redis.lpush("queue:early", json.dumps({"enqueued_at": time.time() + 500}))
    redis.lpush("queue:timeless", json.dumps({"enqueued_at": "yesterday"}))
    redis.lpush("queue:created", json.dumps({"created_at": time.time() - 40}))

    ages = {queue["name"]: queue["latency_s"] for queue in json.loads(wurk("status", "--json"))["queues"]}

    assert 40 <= ages.pop("created") < 50
    assert ages == {"early": 0.0, "timeless": 0.0}


def test_an_empty_redis_is_no_error(wurk: Wurk, redis: redis_py.Redis) -> None:
    printed = wurk("status")

    assert "No process runs." in printed
    assert "No queue is known." in printed
    assert redis.dbsize() == 0, "reading never writes"


def test_names_from_redis_cannot_steer_the_terminal(redis: redis_py.Redis, wurk: Wurk) -> None:
    redis.sadd("queues", b"evil\x1b[2J\n", b"\xff")

    printed = wurk("status")

    assert "\x1b" not in printed
    assert "evil?[2J?" in printed


def test_nonsense_in_redis_is_passed_over(redis: redis_py.Redis, wurk: Wurk) -> None:
    redis.sadd("processes", "wrong:1:type", "odd:2:x", "no colons")
    redis.set("wrong:1:type", "a text")
    redis.hset("odd:2:x", mapping={"info": "[]", "busy": "many", "beat": "nan", "rss": "", "concurrency": "1e400"})
    redis.hset("no colons", mapping={"info": '{"capsules": {"a": 1}, "concurrency": []}', "beat": "-"})
    redis.sadd("queues", "a-set")
    redis.sadd("queue:a-set", "x")
    redis.mset({"stat:processed": "lots"})

    found = json.loads(wurk("status", "--json"))

    assert [(each["identity"], each["busy"], each["concurrency"]) for each in found["processes"]] == [
        ("no colons", 0, 0), ("odd:2:x", 0, 0),
    ]  # fmt: skip
    assert found["queues"] == [{"name": "a-set", "size": 0, "latency_s": 0.0, "paused": False}]
    assert found["processed"] == 0
