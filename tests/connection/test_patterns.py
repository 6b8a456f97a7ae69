"""No user text in a SCAN pattern: a queue's private lists are found whatever its name, and nobody else's."""

from __future__ import annotations

import pytest
import redis as redis_py
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.proxy import Proxy
from wurk_django import keys, wire
from wurk_django.connection import Redis
from wurk_django.storage import orphans

HOSTILE = [
    "*",
    "?",
    "a*",
    "[ab]",
    "[^a]",
    "[a-z]",
    "\\",
    "\\*",
    "a\\",
    "[",
    "]",
    "^",
    "-",
    "a?b",
    "é*",
    "{a,b}",
    "queue:*",
]


def private(name: str) -> str:
    return keys.private_list(name, "host", 1, "0123456789ab")


@pytest.mark.oracle("safety:S-63")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_queue_that_is_named_like_a_pattern_finds_its_own_lists_only(
    name: str, redis: redis_py.Redis, pool: Redis
) -> None:
    others = ["a", "b", "ab", "axb", "anything", "\\x", "a\\x", "éx", "queue:x", "", "^", "default"]
    for other in {*others, *HOSTILE}:
        redis.lpush(private(other), "x")
    redis.lpush(f"queue:{name}", "x")

    assert set(orphans.private_lists(pool, name)) == {private(name)}


@pytest.mark.oracle("safety:S-63")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(st.sampled_from("ab*?[]^-\\é{}"), min_size=1, max_size=6),
    others=st.lists(st.text(st.sampled_from("ab*?[]^-\\é{}"), max_size=6), max_size=8),
)
@example(name="\\*", others=["*", "\\a"])
def test_whatever_the_names_are_each_finds_its_own(
    name: str, others: list[str], redis: redis_py.Redis, pool: Redis
) -> None:
    redis.flushdb()
    for other in {name, *others}:
        redis.lpush(private(other), "x")

    assert set(orphans.private_lists(pool, name)) == {private(name)}


@pytest.mark.oracle("safety:S-63")
def test_the_longest_name_makes_a_pattern_of_bounded_length(proxy: Proxy, through: Redis) -> None:
    name = "*" * wire.MAX_QUEUE_NAME
    assert wire.is_queue_name(name)
    assert not wire.is_queue_name(name + "*")

    list(orphans.private_lists(through, name))

    [pattern] = [command[3] for command in proxy.commands if command.name == "SCAN"]
    assert len(pattern) <= 2 * wire.MAX_QUEUE_NAME + 10


def test_the_scan_goes_on_to_its_end_and_looks_at_lists_only(redis: redis_py.Redis, pool: Redis) -> None:
    lists = {keys.private_list("q", "host", pid, "0123456789ab") for pid in range(400)}
    for key in lists:
        redis.lpush(key, "x")
    redis.set("queue:q|host|9999|0123456789ab|0", "no list")
    for number in range(1000):
        redis.set(f"noise:{number}", 1)

    assert set(orphans.private_lists(pool, "q")) == lists


def test_a_key_that_is_no_utf_8_is_found_and_can_be_read(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(b"queue:q|h\xff|1|n|0", b"job")

    [key] = orphans.private_lists(pool, "q")

    assert orphans.newest(pool, key) == [b"job"]
    assert orphans.drain(pool, key, "q", None, [b"job"]) == 1
    assert redis.lrange("queue:q", 0, -1) == [b"job"]
