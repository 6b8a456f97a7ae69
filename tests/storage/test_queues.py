"""Queues and private lists: what each script and command does to them, and what it refuses to do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis as redis_py

from tests.support.faults import LoseReply, named
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.config import Options
from wurk_django.connection import Redis
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.storage import queues
from wurk_django.storage.queues import Ack, Claimed, Lane
from wurk_django.wire import MAX_CLAIM_BYTES

A = Lane("a", "queue:a", "queue:a|host|1|nonce|0")
B = Lane("b", "queue:b", "queue:b|host|1|nonce|0")
OPTIONS = Options()


def claim(pool: Redis, lanes: Sequence[Lane], limits: Sequence[int], wanted: int) -> list[Claimed]:
    return queues.dispatch(pool, [], lanes, limits, wanted, OPTIONS)


def test_a_push_makes_the_first_job_the_next_to_run_in_one_round_trip(
    redis: redis_py.Redis, broken_line: Redis, proxy: Proxy
) -> None:
    queues.push(broken_line, {"a": [b"1", b"2"], "b": [b"3"]})

    assert redis.lrange("queue:a", 0, -1) == [b"2", b"1"]
    assert redis.smembers("queues") == {b"a", b"b"}
    assert proxy.round_trips == 1 + sum(command.name == "CLIENT" for command in proxy.commands)


@pytest.mark.oracle("reliability:C2")
def test_a_push_whose_answer_is_lost_is_not_sent_again(redis: redis_py.Redis, broken_line: Redis, proxy: Proxy) -> None:
    proxy.on(named("LPUSH"), LoseReply())

    with pytest.raises(RedisUnavailable):
        queues.push(broken_line, {"a": [b"1"]})

    assert redis.lrange("queue:a", 0, -1) == [b"1"]


def test_a_push_to_a_full_redis_is_refused(full: tuple[RedisServer, Redis]) -> None:
    server, pool = full
    server.config_set(maxmemory=1)

    with pytest.raises(RedisRefused) as refused:
        queues.push(pool, {"a": [b"1"]})

    assert refused.value.code == "OOM"


def test_claims_come_in_the_order_of_the_queues_and_of_their_jobs(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(A.public, b"a1", b"a2")
    redis.lpush(B.public, b"b1", b"b2")

    assert claim(pool, [A, B], [10, 10], 3) == [Claimed(A, b"a1"), Claimed(A, b"a2"), Claimed(B, b"b1")]

    assert redis.lrange(A.private, 0, -1) == [b"a2", b"a1"]
    assert redis.lrange(B.public, 0, -1) == [b"b2"]


def test_no_queue_gives_more_than_its_limit(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(A.public, b"a1", b"a2")
    redis.lpush(B.public, b"b1", b"b2")

    assert claim(pool, [B, A], [1, 1], 5) == [Claimed(B, b"b1"), Claimed(A, b"a1")]


def test_acknowledgements_and_claims_go_in_one_call(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(A.private, b"done", b"running")
    redis.set("counter", 2)
    redis.lpush(B.public, b"next")

    taken = queues.dispatch(pool, [Ack(A.private, "counter", b"done")], [B], [1], 1, OPTIONS)

    assert taken == [Claimed(B, b"next")]
    assert redis.lrange(A.private, 0, -1) == [b"running"]
    assert redis.exists("counter") == 0


def test_an_acknowledgement_takes_the_older_of_two_equal_payloads_and_only_one(
    redis: redis_py.Redis, pool: Redis
) -> None:
    redis.lpush(A.private, b"twin", b"other", b"twin")

    queues.dispatch(pool, [Ack(A.private, "counter", b"twin")], [], [], 0, OPTIONS)

    assert redis.lrange(A.private, 0, -1) == [b"twin", b"other"]


def test_five_hundred_acknowledgements_go_in_a_call(redis: redis_py.Redis, pool: Redis) -> None:
    payloads = [b"%d" % number for number in range(queues.MAX_ACKS)]
    redis.lpush(A.private, *payloads)
    redis.lpush(A.public, *[b"n%d" % number for number in range(queues.MAX_CLAIM)])
    acks = [Ack(A.private, f"counter {number}", raw) for number, raw in enumerate(payloads)]

    taken = queues.dispatch(pool, acks, [A], [queues.MAX_CLAIM], queues.MAX_CLAIM, OPTIONS)

    assert len(taken) == redis.llen(A.private) == queues.MAX_CLAIM


@pytest.mark.oracle("safety:S-04")
def test_a_payload_over_the_cap_is_buried_and_told_without_its_bytes(redis: redis_py.Redis, pool: Redis) -> None:
    large = b"x" * (MAX_CLAIM_BYTES + 1)
    redis.lpush(A.public, b"before", large, b"", b"after")

    taken = claim(pool, [A], [10], 10)

    assert taken == [Claimed(A, b"before"), Claimed(A, None), Claimed(A, b""), Claimed(A, b"after")]
    assert redis.zrange("dead", 0, -1) == [large]
    assert redis.lrange(A.private, 0, -1) == [b"after", b"", b"before"]


def test_a_payload_over_the_cap_stays_queued_when_it_cannot_be_buried(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set("dead", "text")
    redis.lpush(A.public, b"x" * (MAX_CLAIM_BYTES + 1))

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        claim(pool, [A], [1], 1)

    assert redis.llen(A.public) == 1


@pytest.mark.oracle("reliability:A13")
def test_a_private_list_of_a_wrong_type_takes_nothing_from_its_queue(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set(A.private, "text")
    redis.lpush(A.public, b"1", b"2")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        claim(pool, [A], [2], 2)

    assert redis.lrange(A.public, 0, -1) == [b"2", b"1"]


@pytest.mark.oracle("reliability:F14")
def test_claims_acks_and_requeues_work_while_redis_is_full(full: tuple[RedisServer, Redis]) -> None:
    server, pool = full
    with server.client() as client:
        client.lpush(A.public, b"1", b"2")
        server.config_set(maxmemory=1)

        assert claim(pool, [A], [2], 2) == [Claimed(A, b"1"), Claimed(A, b"2")]
        queues.dispatch(pool, [Ack(A.private, "counter", b"1")], [], [], 0, OPTIONS)
        assert queues.requeue(pool, [(A, b"2")]) == 1

        assert client.lrange(A.public, 0, -1) == [b"2"]
        assert client.exists(A.private) == 0


def test_a_requeue_moves_only_what_the_private_list_holds_to_the_consuming_end(
    redis: redis_py.Redis, pool: Redis
) -> None:
    redis.lpush(A.private, b"1", b"2")
    redis.lpush(A.public, b"waiting")

    assert queues.requeue(pool, [(A, b"2"), (A, b"gone"), (A, b"1")]) == 2

    assert redis.lrange(A.public, 0, -1) == [b"waiting", b"2", b"1"]
    assert queues.requeue(pool, []) == 0


def test_a_refused_requeue_does_not_keep_the_others_from_going_back(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(A.private, b"1")
    redis.lpush(B.private, b"2")
    redis.set(A.public, "text")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        queues.requeue(pool, [(A, b"1"), (B, b"2")])

    assert redis.lrange(A.private, 0, -1) == [b"1"]
    assert redis.lrange(B.public, 0, -1) == [b"2"]


def test_what_a_private_list_holds_is_read_newest_first_and_never_over_the_cap(
    redis: redis_py.Redis, pool: Redis
) -> None:
    large = b"x" * (MAX_CLAIM_BYTES + 1)
    redis.lpush(A.private, b"1", large, b"2")

    assert queues.held(pool, A, OPTIONS) == [b"2", b"1"]
    assert queues.held_counts(pool, [A, B]) == [2, 0]
    assert redis.zrange("dead", 0, -1) == [large]


def test_pausing_tells_whether_anything_changed_and_bumps_the_generation(redis: redis_py.Redis, pool: Redis) -> None:
    before = queues.pause_generation()

    assert queues.pause(pool, "a")
    assert not queues.pause(pool, "a")
    assert redis.smembers("paused") == {b"a"}
    assert queues.paused(pool) == {"a"}
    assert queues.unpause(pool, "a")
    assert not queues.unpause(pool, "a")
    assert queues.paused(pool) == frozenset()
    assert queues.pause_generation() == before + 4


def test_unfinished_is_what_waits_and_what_is_claimed_but_not_what_is_paused(
    redis: redis_py.Redis, pool: Redis
) -> None:
    redis.lpush(A.public, b"1", b"2")
    redis.lpush(B.public, b"3")
    redis.lpush(B.private, b"4")
    assert queues.unfinished(pool, [A, B]) == 4

    redis.sadd("paused", "b")
    assert queues.unfinished(pool, [A, B]) == 3, "a claimed job of a paused queue still runs"


def test_ending_a_wait_tells_which_connections_were_waiting(redis: redis_py.Redis, pool: Redis) -> None:
    number = pool.run(queues.connection_id)

    assert queues.unblock([number], pool) == [False]
    assert queues.blocking_claim(A, 0.5).startswith(b"*6\r\n$6\r\nBLMOVE\r\n")
