"""The bytes that were read are the identity of a job, and every reader of a payload sees the same job in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import corpus
from wurk_django import wire
from wurk_django.config import Options
from wurk_django.connection import Redis, RedisOptions
from wurk_django.storage import orphans, queues, sorted_sets
from wurk_django.storage.queues import Ack, Lane

LANE = Lane("q", "queue:q", "queue:q|h|1|n|0")
COUNTER = "super_fetch:recovered:a"
OPTIONS = Options()

spaces = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])


@st.composite
def odd_jobs(draw: st.DrawFn) -> bytes:
    """A job as somebody else might render it: keys in any order, spaces and escapes anywhere."""
    fields: dict[str, Any] = {"class": "C", "args": [1.0, "é\u2028/", {"b": 1, "a": None}], "jid": "a", "queue": "q"}
    keys = draw(st.permutations(list(fields)))
    text = json.dumps(
        {key: fields[key] for key in keys},
        ensure_ascii=draw(st.booleans()),
        separators=(draw(spaces) + "," + draw(spaces), draw(spaces) + ":" + draw(spaces)),
    )
    if draw(st.booleans()):
        text = text.replace("/", "\\/").replace("1.0", "1.00e0")
    return (draw(spaces) + text + draw(spaces)).encode()


@pytest.fixture
def pool(redis_url: str) -> Iterator[Redis]:
    pool = Redis(RedisOptions(redis_url))
    yield pool
    pool.close()


def acknowledge(pool: Redis, raw: bytes) -> None:
    queues.dispatch(pool, [Ack(LANE.private, COUNTER, raw)], [], [], 0, OPTIONS)


def give_back(pool: Redis, raw: bytes) -> None:
    assert queues.requeue(pool, [(LANE, raw)]) == 1


def retry(pool: Redis, raw: bytes) -> None:
    assert sorted_sets.book_retry(pool, LANE, COUNTER, raw, b"again", 5)


def bury(pool: Redis, raw: bytes) -> None:
    assert sorted_sets.bury(pool, LANE, COUNTER, raw, raw, OPTIONS)


def drain(pool: Redis, raw: bytes) -> None:
    assert orphans.drain(pool, LANE.private, "q", None, [raw], [""], 3) == [orphans.Fate.MOVED]


@pytest.mark.oracle("safety:S-11")
@pytest.mark.parametrize("leave", [acknowledge, give_back, retry, bury, drain])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=odd_jobs())
def test_a_claimed_job_leaves_by_its_bytes_however_it_was_rendered(
    leave: Callable[[Redis, bytes], None], raw: bytes, redis: redis_py.Redis, pool: Redis
) -> None:
    redis.flushall()
    redis.lpush(LANE.public, raw)
    [(lane, claimed)] = queues.dispatch(pool, [], [LANE], [1], 1, OPTIONS)
    assert (lane, claimed) == (LANE, raw)
    assert wire.decode_job(raw)["jid"] == "a"
    redis.lpush(LANE.private, wire.encode(wire.decode_job(raw)) + b" ")  # the same job, rendered again

    leave(pool, raw)

    assert redis.lrange(LANE.private, 0, -1) == [wire.encode(wire.decode_job(raw)) + b" "]


@pytest.mark.oracle("safety:S-11")
@pytest.mark.parametrize("name", ["bom", "utf8-lone-ff", "pickle-2", "nul", "json-cut-short", "wide-100000-fields"])
def test_what_is_no_job_is_buried_byte_for_byte(name: str, redis: redis_py.Redis, pool: Redis) -> None:
    raw = corpus.CORPUS[name]
    redis.lpush(LANE.public, raw)
    [(_, claimed)] = queues.dispatch(pool, [], [LANE], [1], 1, OPTIONS)
    assert claimed == raw

    bury(pool, raw)

    assert redis.zrange("dead", 0, -1) == [raw]
    assert not redis.exists(LANE.private)


def test_an_empty_text_on_a_queue_is_claimed_like_any_other_payload(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LANE.public, b"")

    [(_, claimed)] = queues.dispatch(pool, [], [LANE], [1], 1, OPTIONS)

    assert claimed == b""
    assert redis.lrange(LANE.private, 0, -1) == [b""]


@pytest.mark.oracle("safety:S-10")
@pytest.mark.parametrize(
    "first", ['"queue":"first"', '"queue":5', '"queue":"a|b"', '"queue":null', '"qu\\u0065ue":"first"']
)
def test_script_and_worker_see_the_same_queue_in_a_payload_with_two(
    first: str, redis: redis_py.Redis, pool: Redis
) -> None:
    raw = f'{{{first},"class":"C","args":[],"jid":"a","queue":"last"}}'.encode()
    redis.zadd("schedule", {raw: 1})
    assert wire.decode_job(raw)["queue"] == "last"

    sorted_sets.promote_due(pool, "schedule", OPTIONS)

    [moved] = redis.lrange("queue:last", 0, -1)
    assert wire.decode_job(moved)["queue"] == "last"
    assert redis.smembers("queues") == {b"last"}


@pytest.mark.oracle("safety:S-10")
def test_of_two_enqueued_at_the_script_stamps_the_one_that_the_reader_reads(redis: redis_py.Redis, pool: Redis) -> None:
    raw = b'{"enqueued_at":1,"class":"C","args":[{"enqueued_at":7}],"jid":"a","queue":"q","enqueued_at":2}'
    redis.zadd("schedule", {raw: 1})

    sorted_sets.promote_due(pool, "schedule", OPTIONS)

    job = wire.decode_job(redis.lindex("queue:q", 0))
    assert job["enqueued_at"] > 1_700_000_000_000
    assert job["args"] == [{"enqueued_at": 7}]


@pytest.mark.oracle("safety:S-13")
@pytest.mark.parametrize("name", [name for name in corpus.CORPUS if name.startswith("odd-queue-")])
def test_a_due_job_with_a_hostile_queue_name_writes_into_no_list_but_its_own_queues(
    name: str, redis: redis_py.Redis, pool: Redis
) -> None:
    raw = corpus.CORPUS[name]
    queue = wire.decode_job(raw).get("queue")
    redis.zadd("retry", {raw: 1})

    assert sorted_sets.promote_due(pool, "retry", OPTIONS).handled == 1

    if queue is None:
        assert redis.llen("queue:default") == 1
    elif wire.is_queue_name(queue):
        assert redis.llen(f"queue:{queue}") == 1
    else:
        assert redis.zrange("dead", 0, -1) == [raw]
        assert redis.keys("queue*") == []
