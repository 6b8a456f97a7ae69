"""The process set, orphaned lists, counters, and what a server says about itself."""

from __future__ import annotations

import time

import pytest
import redis as redis_py

from tests.support.faults import Answer, LoseReply, named
from tests.support.proxy import Proxy
from wurk_django.connection import Redis
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.storage import orphans, processes, server, stats
from wurk_django.storage.orphans import Fate
from wurk_django.storage.processes import Beat

LIST = "queue:q|host|1|nonce|0"


def test_a_beat_writes_everything_in_one_step_and_takes_the_signals_oldest_first(
    redis: redis_py.Redis, pool: Redis
) -> None:
    redis.hset("me:work", "stale", "x")
    for signal in range(12):
        redis.lpush("me-signals", signal)

    first = processes.beat(pool, "me", {"info": "{}", "busy": 1}, {"t": b"{}"}, 60)
    second = processes.beat(pool, "me", {"info": "{}", "busy": 0}, {}, 60)

    assert first == Beat(False, [str(number) for number in range(10)])
    assert second == Beat(True, ["10", "11"])
    assert redis.hgetall("me") == {b"info": b"{}", b"busy": b"0"}
    assert redis.exists("me:work") == 0
    assert 58_000 < redis.pttl("me") <= 60_000


def test_only_a_heartbeat_is_life(redis: redis_py.Redis, pool: Redis) -> None:
    redis.sadd("processes", "a:host:1:n", "b:2:n", "text")
    redis.hset("a:host:1:n", "info", "{}")
    redis.hset("b:2:n", "beat", 1)
    redis.set("text", "of another type")

    assert processes.live_owners(pool) == {"a:host:1:n", "a:host:1"}
    assert processes.is_alive(pool, "a:host:1:n")
    assert not processes.is_alive(pool, "b:2:n")
    assert processes.count(pool) == 3
    assert processes.prune(pool) == 2
    assert redis.smembers("processes") == {b"a:host:1:n"}


def test_a_process_that_leaves_takes_both_its_hashes_with_it(redis: redis_py.Redis, pool: Redis) -> None:
    redis.sadd("processes", "me", "other")
    redis.hset("me", "info", "{}")
    redis.hset("me:work", "t", "{}")

    processes.deregister(pool, "me")
    processes.deregister(pool, "me")

    assert redis.keys("*") == [b"processes"]
    assert redis.smembers("processes") == {b"other"}


@pytest.mark.oracle("reliability:R21")
def test_a_drain_moves_nothing_of_an_owner_that_is_alive(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LIST, b"1", b"2")
    redis.hset("host:1:nonce", "info", "{}")

    assert orphans.drain(pool, LIST, "q", "host:1:nonce", [b"2", b"1"], ["", ""], 3) == []
    assert redis.llen(LIST) == 2
    fates = orphans.drain(pool, LIST, "q", None, [b"2", b"gone", b"1"], ["", "", ""], 3)
    assert fates == [Fate.MOVED, Fate.GONE, Fate.MOVED]
    assert redis.lrange("queue:q", 0, -1) == [b"2", b"1"]


def test_lists_are_found_and_only_lists(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(LIST, b"1")
    redis.lpush("queue:q", b"1")
    redis.lpush("queue:qq|host|1|nonce|0", b"1")
    redis.set("queue:q|text", "x")
    redis.lpush(b"queue:q|\xff|1|nonce|0", b"1")

    found = set(orphans.private_lists(pool))

    assert found == {LIST, "queue:qq|host|1|nonce|0", "queue:q|\udcff|1|nonce|0"}
    assert orphans.newest(pool, "queue:q|\udcff|1|nonce|0") == [b"1"]
    assert orphans.idle_seconds(pool, "queue:q|\udcff|1|nonce|0") == 0
    assert orphans.idle_seconds(pool, "queue:q|gone|1|nonce|0") is None


def test_a_sweep_lock_is_held_for_an_interval_and_is_the_same_in_any_order(redis: redis_py.Redis, pool: Redis) -> None:
    assert orphans.take_sweep_lock(pool, ["a", "b"], 0.2)
    assert not orphans.take_sweep_lock(pool, ["b", "a"], 0.2)
    assert orphans.take_sweep_lock(pool, ["a"], 0.2)
    time.sleep(0.25)
    assert orphans.take_sweep_lock(pool, ["a", "b"], 0.2)


def test_a_sweep_lock_whose_answer_is_lost_is_not_asked_for_twice(
    redis: redis_py.Redis, broken_line: Redis, proxy: Proxy
) -> None:
    proxy.on(named("SET"), LoseReply())

    with pytest.raises(RedisUnavailable):
        orphans.take_sweep_lock(broken_line, ["a"], 60)

    assert proxy.count("SET") == 1


def test_counts_that_were_refused_raise_and_counts_whose_answer_is_lost_are_not_sent_twice(
    redis: redis_py.Redis, broken_line: Redis, proxy: Proxy
) -> None:
    stats.add(broken_line, 2, 1)
    redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisRefused):
            stats.add(broken_line, 2, 1)
    finally:
        redis.config_set("maxmemory", 0)
    proxy.on(named("EXEC"), LoseReply())
    with pytest.raises(RedisUnavailable):
        stats.add(broken_line, 3, 0)

    assert redis.get("stat:processed") == b"5"
    assert redis.get("stat:failed") == b"1"


INFO = "redis_version:7.2.4\r\nvalkey_version:9.1.0\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"


def bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (INFO, server.Server("Valkey", (9, 1, 0), False, "noeviction")),
        ("redis_version:6.2.14\r\n", server.Server("Redis", (6, 2, 14), False, "")),
        ("redis_version:7.0.1\r\ncluster_enabled:1\r\n", server.Server("Redis", (7, 0, 1), True, "")),
        ("redis_version:7.0.1\r\nredis_mode:cluster\r\n", server.Server("Redis", (7, 0, 1), True, "")),
        ("", server.Server("Redis", (9, 9, 9), False, "")),
    ],
)
def test_a_server_is_known_by_what_it_says(info: str, found: server.Server, broken_line: Redis, proxy: Proxy) -> None:
    proxy.on(named("INFO"), Answer(bulk(info)))

    assert server.inspect(broken_line) == found


def test_a_server_without_info_is_taken_for_a_new_one(broken_line: Redis, proxy: Proxy) -> None:
    proxy.on(named("INFO"), Answer("ERR unknown command 'INFO'"))

    assert server.inspect(broken_line).version == (9, 9, 9)
