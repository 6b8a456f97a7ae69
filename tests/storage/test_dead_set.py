"""The dead set: what comes in keeps its bytes, and how much of it is kept."""

from __future__ import annotations

import json
import time

import pytest
import redis as redis_py
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.faults import LoseReply, LoseRequest, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.config import Options
from wurk_django.connection import Redis
from wurk_django.errors import RedisRefused
from wurk_django.storage import sorted_sets
from wurk_django.storage.queues import Lane
from wurk_django.storage.sorted_sets import bury, kill, trim_dead

LANE = Lane("q", "queue:q", "queue:q|host|1|nonce|0")
DAY_S = 86_400


def members(redis: redis_py.Redis) -> list[bytes]:
    return redis.zrange("dead", 0, -1)


def fill(redis: redis_py.Redis, count: int, age_s: float = 1000) -> None:
    """Entries `0`, `1`, … with the oldest first."""
    now = time.time()
    if count:
        redis.zadd("dead", {str(number): now - age_s + number * 0.001 for number in range(count)})


@pytest.mark.oracle("core:K1")
def test_a_killed_job_keeps_its_bytes_and_is_scored_now(redis: redis_py.Redis, pool: Redis) -> None:
    raw = b' {"jid" : "a", "args":[1.50, 12345678901234567890] }'

    kill(pool, raw, Options())

    [(member, score)] = redis.zrange("dead", 0, -1, withscores=True)
    assert member == raw
    assert json.loads(member)["jid"] == "a"
    assert abs(score - time.time()) < 10


@pytest.mark.oracle("core:K2", "core:D10")
def test_entries_older_than_the_timeout_go_with_the_next_kill(redis: redis_py.Redis, pool: Redis) -> None:
    now = time.time()
    redis.zadd("dead", {b"a": now - 11, b"b": now - 9})

    kill(pool, b"c", Options(dead_timeout_in_seconds=10))

    assert members(redis) == [b"b", b"c"]


@pytest.mark.oracle("core:K3")
def test_a_set_that_reaches_its_maximum_is_cut_to_one_less(redis: redis_py.Redis, pool: Redis) -> None:
    sizes = []
    for raw in (b"a", b"b", b"c", b"d"):
        kill(pool, raw, Options(dead_max_jobs=3))
        sizes.append(redis.zcard("dead"))

    assert sizes == [1, 2, 2, 2]
    assert members(redis) == [b"c", b"d"]


@pytest.mark.oracle("core:K4")
def test_a_trim_keeps_the_newest(redis: redis_py.Redis, pool: Redis) -> None:
    fill(redis, 5)

    assert trim_dead(pool, 3, 10_000) == 2

    assert members(redis) == [b"3", b"4"]


@pytest.mark.oracle("core:K5")
def test_a_kill_may_leave_the_trimming_to_a_later_one(redis: redis_py.Redis, pool: Redis) -> None:
    fill(redis, 3)
    options = Options(dead_max_jobs=2)

    kill(pool, b"x", options, trim=False)
    assert redis.zcard("dead") == 4
    kill(pool, b"y", options)
    assert members(redis) == [b"y"]


@pytest.mark.oracle("reliability:D1")
def test_ten_thousand_entries_and_one_more_leave_nine_thousand_nine_hundred_ninety_nine(
    redis: redis_py.Redis, pool: Redis
) -> None:
    fill(redis, 10_000)

    kill(pool, b"new", Options())

    assert redis.zcard("dead") == 9_999
    assert redis.zrank("dead", b"new") == 9_998


@pytest.mark.oracle("reliability:D2")
def test_entries_of_more_than_half_a_year_go(redis: redis_py.Redis, pool: Redis) -> None:
    redis.zadd("dead", {b"old": time.time() - 180 * DAY_S - 60, b"young": time.time() - 180 * DAY_S + 60})

    kill(pool, b"new", Options())

    assert members(redis) == [b"young", b"new"]


@pytest.mark.oracle("reliability:D3")
@pytest.mark.parametrize(("fault", "applied"), [(LoseReply(), True), (LoseRequest(), False)])
def test_a_trim_that_is_cut_removes_by_both_limits_or_by_none(
    fault: LoseReply | LoseRequest,
    applied: bool,
    redis: redis_py.Redis,
    broken_line: Redis,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redis.script_load(sorted_sets._trim.source)
    monkeypatch.setattr(broken_line, "_attempts", 1)
    redis.zadd("dead", {b"aged": 1})
    fill(redis, 5)
    proxy.on(script(sorted_sets._trim.sha.decode()), fault)

    with pytest.raises(Exception, match="did not answer"):
        trim_dead(broken_line, 3, 10_000)

    assert redis.zcard("dead") == (2 if applied else 6)


def test_a_backlog_is_trimmed_in_slices(redis: redis_py.Redis, pool: Redis) -> None:
    fill(redis, 2_500)

    assert trim_dead(pool, 101, 10_000) == 1_500
    assert trim_dead(pool, 101, 10_000) == 500
    assert trim_dead(pool, 101, 10_000) == 100
    assert members(redis)[0] == b"2400", "always from the old end"


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 30), maximum=st.integers(1, 40), aged=st.integers(0, 10))
def test_both_limits_hold_whatever_the_set_holds(
    module_redis: redis_py.Redis, module_pool: Redis, count: int, maximum: int, aged: int
) -> None:
    module_redis.delete("dead")
    fill(module_redis, count)
    for number in range(aged):
        module_redis.zadd("dead", {f"aged {number}": number})

    trim_dead(module_pool, maximum, 10_000)

    left = members(module_redis)
    assert left == [str(number).encode() for number in range(count)][-(maximum - 1) :] if maximum > 1 else left == []


@pytest.mark.oracle("core:D24", "safety:K8")
def test_a_death_is_a_move_that_proves_the_job_is_still_held(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LANE.private, b"job")
    redis.set("counter", 2)

    assert bury(pool, LANE, "counter", b"job", b"dead job", Options())
    assert members(redis) == [b"dead job"]
    assert redis.exists(LANE.private, "counter") == 0

    redis.set("counter", 1)
    assert not bury(pool, LANE, "counter", b"job", b"again", Options())
    assert members(redis) == [b"dead job"]
    assert redis.get("counter") == b"1", "nothing is written for a job that is no longer ours"


@pytest.mark.parametrize("name", ["dead", "retry"])
def test_a_set_of_a_wrong_type_keeps_the_job_in_its_private_list(name: str, redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LANE.private, b"job")
    redis.set(name, "text")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        if name == "dead":
            bury(pool, LANE, "counter", b"job", b"job", Options())
        else:
            sorted_sets.book_retry(pool, LANE, "counter", b"job", b"job", 1)

    assert redis.lrange(LANE.private, 0, -1) == [b"job"]


def test_a_retry_is_a_move_that_proves_the_job_is_still_held(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LANE.private, b"job", b"other")
    redis.set("counter", 2)
    before = time.time()

    assert sorted_sets.book_retry(pool, LANE, "counter", b"job", b"again", 60)

    [(member, score)] = redis.zrange("retry", 0, -1, withscores=True)
    assert member == b"again"
    assert 60 <= score - before < 70
    assert redis.lrange(LANE.private, 0, -1) == [b"other"]
    assert redis.exists("counter") == 0
    assert not sorted_sets.book_retry(pool, LANE, "counter", b"job", b"twice", 60)
    assert redis.zcard("retry") == 1


@pytest.mark.oracle("safety:R11")
def test_deaths_and_retries_are_booked_while_redis_is_full_and_a_kill_is_refused(
    full: tuple[RedisServer, Redis],
) -> None:
    server, pool = full
    with server.client() as client:
        client.lpush(LANE.private, b"a", b"b")
        server.config_set(maxmemory=1)

        assert bury(pool, LANE, "counter", b"a", b"a", Options())
        assert sorted_sets.book_retry(pool, LANE, "counter", b"b", b"b", 1)
        with pytest.raises(RedisRefused, match="OOM"):
            kill(pool, b"c", Options())

        assert (client.zcard("dead"), client.zcard("retry"), client.exists(LANE.private)) == (1, 1, 0)
