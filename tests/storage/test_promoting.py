"""Due jobs move from `schedule` and `retry` to their queues: which, when, and with which bytes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.faults import LoseReply, LoseRequest, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.config import Options
from wurk_django.connection import Redis
from wurk_django.storage import sorted_sets
from wurk_django.storage.sorted_sets import Promoted, promote_due
from wurk_django.wire import MAX_CLAIM_BYTES

OPTIONS = Options()
promoting = script(sorted_sets._promote.sha.decode())


def promoted(redis: redis_py.Redis, pool: Redis, member: bytes, options: Options = OPTIONS) -> bytes:
    """The bytes of this member on the queue `q`."""
    redis.zadd("schedule", {member: 1})
    assert promote_due(pool, "schedule", options) == Promoted(1, 0, "")
    [raw] = redis.lrange("queue:q", 0, -1)
    return raw


@pytest.mark.oracle("reliability:SC1")
def test_a_member_without_the_time_of_enqueueing_gets_it_and_is_else_unchanged(
    redis: redis_py.Redis, pool: Redis
) -> None:
    member = b'{"class":"Ruby::Job","args":[1.0e+16,"\\u00e9\xc3\xa9"],"queue":"q","jid":"a","created_at":5}'
    before_ms = int(time.time() * 1000) - 1000

    raw = promoted(redis, pool, member)

    head, stamp, rest = raw[:15], raw[15:28], raw[28:]
    assert head == b'{"enqueued_at":'
    assert before_ms <= int(stamp) <= before_ms + 10_000
    assert rest == b"," + member[1:]
    assert redis.smembers("queues") == {b"q"}
    assert redis.exists("schedule", "dead") == 0


@pytest.mark.oracle("reliability:SC3")
@pytest.mark.parametrize(
    "member",
    [
        b'{"args":[12345678901234567,0.1234567890123456789,1E400,-0.0],"enqueued_at":1,"queue":"q"}',
        b'{"enqueued_at":1796073053.160,"queue":"q","args":[90071992547409931]}',
        b'{ "queue" : "q" , "enqueued_at" : "2026-01-01T00:00:00Z", "args" : [ 1 ] }',
        b'{"queue":"q","args":[{"enqueued_at":7,"x":{"enqueued_at":[8]}}],"enqueued_at":-1.5e3}',
        b'{"queue":"q","args":["\\"enqueued_at\\":9,{[","enqueued_at"],"enqueued_at":1}',
        b'{"queue":"q","enqueued_at":5,"args":[],"enqueued_at":6}',
        b'{"queue":"q","args":["a\\\\"],"enqueued_at":1,"x":"\\\\\\""}',
    ],
)
def test_only_the_top_level_time_of_enqueueing_changes(member: bytes, redis: redis_py.Redis, pool: Redis) -> None:
    raw = promoted(redis, pool, member)

    before, after = json.loads(member), json.loads(raw)
    stamp = after.pop("enqueued_at")
    assert abs(stamp / 1000 - time.time()) < 10
    del before["enqueued_at"]
    assert str(after) == str(before)
    text = str(stamp).encode()
    head, tail = raw[: raw.rindex(text)], raw[raw.rindex(text) + len(text) :]
    assert member.startswith(head)
    assert member.endswith(tail)


@pytest.mark.parametrize("value", ["null", "true", "[1]", '{"a":1}', '"a\\"b"'])
def test_a_time_of_enqueueing_that_is_no_time_stays(value: str, redis: redis_py.Redis, pool: Redis) -> None:
    member = f'{{"queue":"q","enqueued_at":{value},"args":[]}}'.encode()

    assert promoted(redis, pool, member) == member


def test_times_are_written_as_seconds_where_the_fleet_wants_them(redis: redis_py.Redis, pool: Redis) -> None:
    raw = promoted(redis, pool, b'{"queue":"q"}', Options(wire_timestamps="seconds"))

    stamp = json.loads(raw)["enqueued_at"]
    assert type(stamp) is float
    assert abs(stamp - time.time()) < 10


LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.floats(allow_nan=False, width=32)
KEYS = st.sampled_from(["enqueued_at", "queue", "args", 'enqueued_at"', "\\", "{", "x"]) | st.text(max_size=4)
VALUES = st.recursive(
    LEAVES.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.booleans(), st.booleans())
def test_whatever_stands_in_a_job_only_its_time_of_enqueueing_changes(
    module_redis: redis_py.Redis, module_pool: Redis, job: dict[str, Any], spaced: bool, escaped: bool
) -> None:
    module_redis.delete("queue:q", "schedule")
    job["queue"] = "q"
    job["jid"] = "x"
    separators = (" , ", " : ") if spaced else (",", ":")
    member = json.dumps(job, separators=separators, ensure_ascii=escaped).encode("utf-8", "surrogatepass")

    raw = promoted(module_redis, module_pool, member)

    after = json.loads(raw.decode("utf-8", "surrogatepass"))
    stamp = after.get("enqueued_at")
    fresh = type(stamp) is int and abs(stamp / 1000 - time.time()) < 60
    if type(job.get("enqueued_at", 0)) in (int, float):
        assert fresh
    if fresh:
        job["enqueued_at"] = stamp
    assert after == job


@pytest.mark.oracle("reliability:SC4")
def test_garbage_goes_to_the_dead_set_and_keeps_no_job_back(redis: redis_py.Redis, pool: Redis) -> None:
    garbage = [b"\x80\x04\x95", b"", b"[1]", b'{"queue":"q"', b"null", b'{"a":' * 2000, b"{" * 5000]
    members = [b'{"queue":"q","args":[%d]}' % number for number in range(10)]
    redis.zadd("schedule", {**dict.fromkeys(garbage, 1), **dict.fromkeys(members, 2)})

    assert promote_due(pool, "schedule", OPTIONS) == Promoted(17, 0, "")

    assert redis.llen("queue:q") == 10
    assert sorted(redis.zrange("dead", 0, -1)) == sorted(garbage), "byte for byte"
    assert all(abs(score - time.time()) < 10 for _, score in redis.zrange("dead", 0, -1, withscores=True))
    assert redis.zcard("schedule") == 0


@pytest.mark.oracle("safety:S-13")
@pytest.mark.parametrize(
    "queue", ['"a|host|1|nonce|0"', '"a\\u0000b"', '"a\\nb"', '"a\\u0085b"', '""', "5", "[]", "{}", "true",
              '"' + "x" * 201 + '"', '"\\ud800"'],
)  # fmt: skip
def test_a_queue_name_that_must_not_become_a_key_buries_its_job(queue: str, redis: redis_py.Redis, pool: Redis) -> None:
    member = f'{{"class":"x","args":[],"queue":{queue}}}'.encode()
    redis.zadd("retry", {member: 1})

    assert promote_due(pool, "retry", OPTIONS).handled == 1

    assert redis.keys("*") == [b"dead"]
    assert redis.zrange("dead", 0, -1) == [member]


@pytest.mark.parametrize(
    ("queue", "name"),
    [("null", "default"), ('"é x:y.z-1"', "é x:y.z-1"), ('"' + "é" * 200 + '"', "é" * 200)],
)
def test_a_missing_name_means_default_and_sidekiqs_names_are_kept(
    queue: str, name: str, redis: redis_py.Redis, pool: Redis
) -> None:
    redis.zadd("retry", {f'{{"queue":{queue}}}': 1})

    promote_due(pool, "retry", OPTIONS)

    assert redis.llen(f"queue:{name}") == 1


def test_a_job_without_a_queue_goes_to_default(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("retry", {b"{}": 1})

    promote_due(pool, "retry", OPTIONS)

    assert json.loads(redis.lindex("queue:default", 0)).keys() == {"enqueued_at"}


def test_the_earliest_comes_first_to_its_queue(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("schedule", {f'{{"queue":"q","args":[{number}]}}': number for number in (3, 1, 2)})

    promote_due(pool, "schedule", OPTIONS)

    assert [json.loads(raw)["args"] for raw in redis.lrange("queue:q", 0, -1)[::-1]] == [[1], [2], [3]]


def test_what_is_not_due_stays(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("schedule", {b'{"queue":"q"}': time.time() + 60})

    assert promote_due(pool, "schedule", OPTIONS) == Promoted(0, 0, "")
    assert redis.zcard("schedule") == 1


@pytest.mark.oracle("reliability:SC7")
def test_a_queue_of_a_wrong_type_keeps_its_jobs_waiting_and_no_others(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set("queue:x", "text")
    blocked = [b'{"queue":"x","args":[%d]}' % number for number in range(3)]
    redis.zadd("schedule", {**dict.fromkeys(blocked, 1), b'{"queue":"y"}': 2})

    assert promote_due(pool, "schedule", OPTIONS) == Promoted(1, 3, "queue:x")

    assert redis.llen("queue:y") == 1
    assert redis.zrange("schedule", 0, -1) == sorted(blocked)
    assert redis.get("queue:x") == b"text"
    assert promote_due(pool, "schedule", OPTIONS, skip=3) == Promoted(0, 0, "")


def test_a_dead_set_of_a_wrong_type_keeps_garbage_waiting_and_no_others(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set("dead", "text")
    redis.zadd("schedule", {b"garbage": 1, b'{"queue":"y"}': 2})

    assert promote_due(pool, "schedule", OPTIONS) == Promoted(1, 1, "dead")

    assert redis.llen("queue:y") == 1
    assert redis.zrange("schedule", 0, -1) == [b"garbage"]


@pytest.mark.oracle("reliability:SC8", "safety:R11")
def test_due_jobs_are_promoted_while_redis_is_full(full: tuple[RedisServer, Redis]) -> None:
    server, pool = full
    with server.client() as client:
        client.zadd("schedule", {**{b'{"queue":"q","args":[%d]}' % n: 1 for n in range(100)}, b"garbage": 1})
        server.config_set(maxmemory=1)

        assert promote_due(pool, "schedule", OPTIONS).handled == 101

        assert (client.llen("queue:q"), client.zcard("schedule"), client.zcard("dead")) == (100, 0, 1)


@pytest.mark.oracle("reliability:SC2", "safety:K17")
@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()], ids=["answer lost", "request lost"])
def test_a_promotion_that_is_repeated_moves_each_job_once(
    fault: LoseReply | LoseRequest, redis: redis_py.Redis, broken_line: Redis, proxy: Proxy
) -> None:
    redis.script_load(sorted_sets._promote.source)
    redis.zadd("schedule", {b'{"queue":"q","args":[%d]}' % number: 1 for number in range(20)})
    cut = proxy.on(promoting, fault)

    promote_due(broken_line, "schedule", OPTIONS)

    assert cut.hits == 1
    moved = {json.loads(raw)["args"][0] for raw in redis.lrange("queue:q", 0, -1)}
    assert (redis.llen("queue:q"), moved) == (20, set(range(20)))
    assert redis.zcard("schedule") == 0


def test_the_dead_set_is_trimmed_when_garbage_comes_in(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("schedule", {f"garbage {number}": number for number in range(10)})

    promote_due(pool, "schedule", Options(dead_max_jobs=4))

    assert redis.zcard("dead") == 3


def test_a_call_handles_no_more_than_its_limit(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("schedule", {b'{"queue":"q","args":[%d]}' % number: number for number in range(7)})

    assert promote_due(pool, "schedule", OPTIONS, limit=5) == Promoted(5, 0, "", more=True)
    assert redis.zcard("schedule") == 2
    assert promote_due(pool, "schedule", OPTIONS, limit=5) == Promoted(2, 0, "")


@pytest.mark.oracle("safety:S-62")
def test_a_call_stops_early_when_it_has_moved_many_bytes(redis: redis_py.Redis, pool: Redis) -> None:
    """Redis serves nobody else while a script runs, so a call is bounded by bytes as well as by members."""
    large = b'{"queue":"q","args":["%s",%d]}'
    redis.zadd("schedule", {large % (b"x" * 1_000_000, number): number for number in range(12)})

    calls = [promote_due(pool, "schedule", OPTIONS) for _ in range(3)]

    assert [(call.handled, call.more) for call in calls] == [(5, True), (5, True), (2, False)]
    assert redis.llen("queue:q") == 12


def test_a_member_over_the_size_cap_is_buried_without_being_decoded(redis: redis_py.Redis, pool: Redis) -> None:
    member = b'{"queue":"q","args":["%s"]}' % (b"x" * MAX_CLAIM_BYTES)
    redis.zadd("schedule", {member: 1.0})

    assert promote_due(pool, "schedule", OPTIONS).handled == 1
    assert redis.zcard("dead") == 1
    assert redis.llen("queue:q") == 0


def test_members_that_cannot_move_hide_none_of_those_behind_them(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set("queue:x", "text")
    redis.zadd("schedule", {b'{"queue":"x","args":[%d]}' % number: number for number in range(120)})
    redis.zadd("schedule", {b'{"queue":"y","args":[%d]}' % number: number + 0.5 for number in range(200)})

    assert promote_due(pool, "schedule", OPTIONS) == Promoted(200, 120, "queue:x")

    assert redis.llen("queue:y") == 200
    assert redis.zcard("schedule") == 120


@pytest.mark.oracle("safety:S-04")
def test_a_member_over_the_cap_goes_to_the_dead_set_undecoded(redis: redis_py.Redis, pool: Redis) -> None:
    large = b'{"queue":"q","args":["' + b"x" * MAX_CLAIM_BYTES + b'"]}'
    redis.zadd("schedule", {large: 1, b'{"queue":"q"}': 2})

    first = promote_due(pool, "schedule", OPTIONS)
    assert (first.handled, first.more) == (1, True)
    assert promote_due(pool, "schedule", OPTIONS) == Promoted(1, 0, "")

    assert redis.zrange("dead", 0, -1) == [large]
    assert redis.llen("queue:q") == 1


def test_a_call_does_not_hold_redis_for_many_megabytes(redis: redis_py.Redis, pool: Redis) -> None:
    filler = b"x" * (1 << 20)
    redis.zadd("schedule", {b'{"queue":"q","args":[%d,"%b"]}' % (number, filler): number for number in range(10)})

    calls = []
    while (done := promote_due(pool, "schedule", OPTIONS)).more:
        calls.append(done.handled)

    assert max(calls) <= 4
    assert redis.llen("queue:q") == 10
