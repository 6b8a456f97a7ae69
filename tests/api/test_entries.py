"""One entry: retried, queued, killed, rescheduled. Each change needs the exact bytes, and keeps them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.conftest import Fill, payload
from tests.support.servers import RedisServer
from wurk_django import wire
from wurk_django.api import DeadSet, JobSet, RetrySet, ScheduledSet
from wurk_django.api.rewriting import edit
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.errors import InvalidJob, RedisRefused


def queued(redis: redis_py.Redis, name: str = "default") -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in redis.lrange(f"queue:{name}", 0, -1)]


def first(entries: JobSet) -> Any:
    return next(iter(entries))


@pytest.mark.oracle("core:Z5", "core:D13")
def test_of_three_entries_of_one_score_the_right_one_is_retried(redis: redis_py.Redis, config: Config) -> None:
    raws = {jid: payload(jid, retry_count=1) for jid in ("c0", "c1", "c2")}
    redis.zadd("retry", dict.fromkeys(raws.values(), 500.5))

    [entry] = RetrySet(config).fetch(500.5, "c1")
    assert entry.retry()

    [job] = queued(redis)
    assert (job["jid"], job["retry_count"]) == ("c1", 0)
    assert redis.zrange("retry", 0, -1, withscores=True) == [(raws["c0"], 500.5), (raws["c2"], 500.5)]
    assert redis.smembers("queues") == {b"default"}


@pytest.mark.oracle("core:Z6")
def test_a_retry_by_hand_uses_up_no_attempt(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a", retry_count=2): 1})

    assert first(RetrySet(config)).retry()

    [job] = queued(redis)
    assert job["retry_count"] == 1
    assert abs(job["enqueued_at"] - time.time() * 1000) < 10_000


@pytest.mark.oracle("core:Z7")
def test_adding_to_the_queue_keeps_the_count(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a", retry_count=3, queue="low"): 1})

    assert first(RetrySet(config)).add_to_queue()

    assert queued(redis, "low")[0]["retry_count"] == 3


@pytest.mark.oracle("core:Z8", "core:D14", "safety:S-11")
def test_an_entry_is_rescheduled_by_its_bytes(redis: redis_py.Redis, config: Config) -> None:
    odd = b' {"jid" : "odd","args":[1.50]}'
    redis.zadd("schedule", {odd: 10, payload("b"): 11, payload("c"): 12})
    now = round(time.time())
    entries = {entry.jid: entry for entry in ScheduledSet(config)}

    assert entries["odd"].reschedule(now + 15)
    assert entries["b"].reschedule(datetime.fromtimestamp(now + 10, UTC))

    assert redis.zrange("schedule", 0, -1, withscores=True) == [
        (payload("c"), 12.0), (payload("b"), now + 10.0), (odd, now + 15.0),
    ]  # fmt: skip
    assert (entries["odd"].score, entries["b"].score) == (now + 15, now + 10)
    assert entries["odd"].at == datetime.fromtimestamp(now + 15, UTC)


@pytest.mark.oracle("core:D12")
@pytest.mark.parametrize(
    "act",
    [
        lambda entry: entry.retry(),
        lambda entry: entry.add_to_queue(),
        lambda entry: entry.kill(),
        lambda entry: entry.delete(),
        lambda entry: entry.reschedule(99),
    ],
)
def test_what_is_gone_is_neither_moved_nor_made_again(
    act: Callable[[Any], bool], redis: redis_py.Redis, config: Config
) -> None:
    told: list[object] = []
    config.death_handlers.append(lambda job, _error: told.append(job))
    redis.zadd("retry", {payload("a"): 1})
    entry = first(RetrySet(config))
    redis.delete("retry")

    assert not act(entry)

    assert redis.keys("*") == []
    assert entry.score == 1
    assert told == []


@pytest.mark.oracle("safety:S-11")
def test_a_kill_moves_the_bytes_and_tells_the_handlers(redis: redis_py.Redis, config: Config) -> None:
    told: list[tuple[str, str]] = []
    config.death_handlers.append(lambda job, error: told.append((job["jid"], str(error))))
    odd = b' {"jid" : "odd", "args":[12345678901234567890, 1.50]}'
    redis.zadd("retry", {odd: 1})

    assert first(RetrySet(config)).kill()

    [(raw, score)] = redis.zrange("dead", 0, -1, withscores=True)
    assert raw == odd
    assert abs(score - time.time()) < 10
    assert told == [("odd", "Job killed by API")]
    assert not redis.exists("retry")


def test_a_kill_trims_the_dead_set(redis: redis_py.Redis, redis_url: str, fill: Fill) -> None:
    config = Config(Options(dead_max_jobs=5), RedisOptions(redis_url))
    fill("dead", 20, time.time() - 100)
    fill("retry", 1)

    assert first(RetrySet(config)).kill()

    assert redis.zcard("dead") == 4
    config.reset_redis_pools()


@pytest.mark.oracle("core:D2")
def test_fields_that_steer_a_push_are_not_obeyed_and_not_pushed(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a", pool="x", sync=True, at=4e9): 1})

    assert first(RetrySet(config)).retry()

    [job] = queued(redis)
    assert not {"pool", "sync", "at"} & job.keys()
    assert not redis.exists("schedule")


@pytest.mark.oracle("safety:S-11")
def test_a_retry_writes_only_the_count_and_the_time_anew(redis: redis_py.Redis, config: Config) -> None:
    raw = (
        rb'{ "retry_count" : 5,"class":"A","queue":"default","retry":true,"created_at":1.0,'
        rb'"args":[1.50,1e2,"\u00e9",{"retry_count":9}], "jid":"x" , "enqueued_at":1.25, "later":[] }'
    )
    redis.zadd("retry", {raw: 1})

    assert first(RetrySet(config)).retry()

    [pushed] = redis.lrange("queue:default", 0, -1)
    stamp = json.loads(pushed)["enqueued_at"]
    assert pushed == raw.replace(b'"retry_count" : 5', b'"retry_count" : 4').replace(b"1.25", str(stamp).encode())


def test_a_new_time_comes_last(redis: redis_py.Redis, config: Config) -> None:
    raw = payload("a")
    redis.zadd("schedule", {raw: 1})

    first(ScheduledSet(config)).add_to_queue()

    [pushed] = redis.lrange("queue:default", 0, -1)
    assert pushed.startswith(raw[:-1] + b',"enqueued_at":')


NAMES = st.sampled_from(["a", "b", "é", 'q"', "\\", "{", "\ud800"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


@settings(max_examples=200, deadline=None)
@given(before=OBJECTS, after=OBJECTS, indent=st.sampled_from([None, 1]), ascii=st.booleans())
def test_edited_bytes_say_what_they_should(
    before: dict[str, Any], after: dict[str, Any], indent: int, ascii: bool
) -> None:
    raw = json.dumps(before, indent=indent, ensure_ascii=ascii).encode("utf-8", "backslashreplace")
    before = wire.decode(raw)

    edited = edit(raw, before, after)

    assert repr_of(wire.decode(edited)) == repr_of(after)
    assert edit(raw, before, before) == raw


def repr_of(item: dict[str, Any]) -> str:
    return json.dumps(item, sort_keys=True)


@pytest.mark.oracle("safety:S-10")
def test_of_a_repeated_field_the_last_one_counts_and_changes(redis: redis_py.Redis, config: Config) -> None:
    raw = (
        b'{"retry":true,"queue":"low","class":"A","args":[],"jid":"x","created_at":1,"retry_count":1,'
        b'"queue":"high","retry_count":7}'
    )
    redis.zadd("retry", {raw: 1})

    assert first(RetrySet(config)).retry()

    [job] = queued(redis, "high")
    assert job["retry_count"] == 6


def test_client_middleware_sees_a_copy_and_may_change_it(redis: redis_py.Redis, config: Config) -> None:
    class Change:
        def call(self, _job: object, item: dict[str, Any], _queue: str, _redis: object, call_next: Any) -> Any:
            item["args"].append("more")
            item["queue"] = "other"
            return call_next()

    config.client_middleware.add(Change)
    redis.zadd("retry", {payload("a"): 1})

    assert first(RetrySet(config)).retry()

    assert queued(redis, "other")[0]["args"] == [1, "more"]


def test_what_a_client_middleware_stops_stays(redis: redis_py.Redis, config: Config) -> None:
    class Stop:
        def call(self, _job: object, _item: dict[str, Any], _queue: str, _redis: object, _call_next: Any) -> Any:
            return None

    config.client_middleware.add(Stop)
    redis.zadd("retry", {payload("a"): 1})

    assert not first(RetrySet(config)).retry()

    assert redis.zrange("retry", 0, -1) == [payload("a")]
    assert not redis.exists("queue:default")


@pytest.mark.oracle("safety:S-08", "safety:S-13")
@pytest.mark.parametrize(
    "raw",
    [
        b"{", b"\xff", b"[]", b"null", b'{"class":"A"}', b'{"class":5,"args":[],"jid":"a"}',
        payload("a", queue="default|host|1|n|0"), payload("a", queue="x\n"), b'{"class":"A","args":[],"jid":7}',
    ],
)  # fmt: skip
def test_what_is_no_job_cannot_be_queued_but_killed_and_deleted(
    raw: bytes, redis: redis_py.Redis, config: Config
) -> None:
    redis.zadd("retry", {raw: 1})
    entry = first(RetrySet(config))

    with pytest.raises(InvalidJob):
        entry.retry()
    with pytest.raises(InvalidJob):
        entry.add_to_queue()
    assert redis.keys("*") == [b"retry"]

    assert entry.kill()
    assert redis.zrange("dead", 0, -1) == [raw]
    assert first(DeadSet(config)).delete()
    assert redis.keys("*") == []


def test_a_queue_key_of_a_wrong_type_keeps_the_job(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a"): 1})
    redis.set("queue:default", "text")

    with pytest.raises(RedisRefused, match="holds no list"):
        first(RetrySet(config)).retry()

    assert redis.zcard("retry") == 1

    redis.delete("queue:default")
    redis.set("queues", "text")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        first(RetrySet(config)).retry()
    assert redis.zcard("retry") == 1


def test_a_dead_set_of_a_wrong_type_keeps_the_job(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a"): 1})
    redis.set("dead", "text")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        first(RetrySet(config)).kill()

    assert redis.zcard("retry") == 1


def test_jobs_are_retried_killed_and_deleted_while_redis_is_full(fill: Fill) -> None:
    with RedisServer() as server, server.client() as client:
        config = Config(redis=RedisOptions(server.url))
        client.zadd("retry", {payload(jid): place for place, jid in enumerate("abcd")})
        entries = list(RetrySet(config))
        server.config_set(maxmemory=1)

        assert entries[0].retry()
        assert entries[1].kill()
        assert entries[2].delete()
        with pytest.raises(RedisRefused, match="OOM"):
            entries[3].reschedule(5)

        assert (client.llen("queue:default"), client.zcard("dead"), client.zcard("retry")) == (1, 1, 1)
        config.reset_redis_pools()
