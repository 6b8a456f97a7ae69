"""Scripts: by digest first, by source once when the server forgot them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import Answer, LoseReply, anything, named
from tests.support.proxy import Proxy
from wurk_django.connection import Redis
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.script import Script
from wurk_django.storage import queues
from wurk_django.storage.queues import Lane

KILL = Script("wurk_django.storage", "kill", "trim")
REQUEUE = Script("wurk_django.storage", "requeue")
LANES = [Lane(name, f"queue:{name}", f"queue:{name}|h|1|n|0") for name in "abc"]


def kill(pool: Redis, payload: str, **options: Any) -> Any:
    return KILL.run(pool, ("dead",), (payload, 60, 10, 1), **options)


def names(proxy: Proxy) -> list[str]:
    return [command.name for command in proxy.commands if anything(command)]


def test_a_known_script_is_sent_by_its_digest(redis: redis_py.Redis, proxy: Proxy, through: Redis) -> None:
    redis.script_load(KILL.source)

    assert kill(through, "a") == 1

    assert names(proxy) == ["EVALSHA"]
    assert redis.script_exists(KILL.sha.decode()) == [True]


def test_a_forgotten_script_is_sent_once_by_its_source_and_known_from_then_on(
    redis: redis_py.Redis, proxy: Proxy, through: Redis
) -> None:
    assert kill(through, "a") == 1
    assert kill(through, "b") == 1
    redis.script_flush()
    assert kill(through, "c") == 1

    assert names(proxy) == ["EVALSHA", "EVAL", "EVALSHA", "EVALSHA", "EVAL"]
    assert redis.zcard("dead") == 3


def test_a_server_that_never_knows_it_is_an_error_after_one_try(proxy: Proxy, through: Redis) -> None:
    proxy.on(named("EVALSHA", "EVAL"), Answer("NOSCRIPT No matching script."), times=None)

    with pytest.raises(RedisRefused, match="NOSCRIPT"):
        kill(through, "a")

    assert names(proxy) == ["EVALSHA", "EVAL"]


def test_the_source_is_not_sent_again_when_its_answer_was_lost(
    redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(named("EVAL"), LoseReply())

    with pytest.raises(RedisUnavailable):
        kill(through, "a")

    assert names(proxy) == ["EVALSHA", "EVAL"]
    assert redis.zcard("dead") == 1


def test_forgetting_is_no_applied_command_so_that_a_failover_behind_it_is_still_retried(
    proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(named("EVAL"), Answer("READONLY no"))

    assert kill(through, "a") == 1

    assert pauses == [0.0]


@pytest.mark.parametrize("forgotten", [True, False])
def test_calls_in_a_pipeline_are_one_round_trip_and_two_when_the_script_was_forgotten(
    forgotten: bool, redis: redis_py.Redis, proxy: Proxy, through: Redis
) -> None:
    if not forgotten:
        redis.script_load(REQUEUE.source)
    for lane in LANES:
        redis.lpush(lane.private, "job")
    through.execute("PING")
    proxy.clear()

    assert queues.requeue(through, [(lane, b"job") for lane in LANES]) == 3

    assert names(proxy) == (["EVALSHA"] * 3 + (["EVAL"] * 3 if forgotten else []))
    assert proxy.round_trips == (2 if forgotten else 1)
    assert all(redis.lrange(lane.public, 0, -1) == [b"job"] for lane in LANES)


def test_of_a_mixed_pipeline_only_the_calls_that_were_not_known_are_sent_again(
    redis: redis_py.Redis, proxy: Proxy, through: Redis
) -> None:
    redis.script_load(REQUEUE.source)
    for lane in LANES:
        redis.lpush(lane.private, "job", "job")
    proxy.on(lambda command: LANES[1].private.encode() in command, Answer("NOSCRIPT forgotten in between"))

    assert queues.requeue(through, [(lane, b"job") for lane in LANES]) == 3

    assert names(proxy) == ["EVALSHA", "EVALSHA", "EVALSHA", "EVAL"]
    assert all(redis.lrange(lane.private, 0, -1) == [b"job"] for lane in LANES)
    assert all(redis.lrange(lane.public, 0, -1) == [b"job"] for lane in LANES)


def test_a_refusal_of_one_call_stands_in_its_place(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set(LANES[1].public, "no list")
    for lane in LANES:
        redis.lpush(lane.private, "job")
    calls = [((lane.private, lane.public), (b"job",)) for lane in LANES]

    first, refused, third = REQUEUE.run_many(pool, calls)

    assert (first, third) == (1, 1)
    assert isinstance(refused, RedisRefused)
    assert refused.code == "WRONGTYPE"
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        queues.requeue(pool, [(LANES[1], b"job")])


def test_a_script_is_text_and_digest_and_holds_no_connection(
    make_pool: Callable[..., Redis], redis_url: str, redis: redis_py.Redis
) -> None:
    assert repr(KILL) == "<Script kill>"
    for url in (redis_url, redis_url):
        assert KILL.run(make_pool(url), ("dead",), ("a", 60, 10, 1)) in (0, 1)
