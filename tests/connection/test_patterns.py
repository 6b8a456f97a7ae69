"""No user text in a SCAN pattern: a queue's private lists are found whatever its name, and nobody else's."""

from __future__ import annotations

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from wurk_django import keys
from wurk_django.connection import Redis
from wurk_django.storage import orphans
from wurk_django.storage.orphans import Fate
from wurk_django.worker.owners import read_owner

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
def test_a_queue_that_is_named_like_a_pattern_is_found_by_a_pattern_without_its_name(
    name: str, redis: redis_py.Redis, proxy: Proxy, through: Redis
) -> None:
    for other in {"a", "ab", "queue:x", "", *HOSTILE}:
        redis.lpush(private(other), "x")
    redis.lpush("queue:plain", "x")

    found = list(orphans.private_lists(through))

    assert [key for key in found if read_owner(key, name)] == [private(name)]
    assert "queue:plain" not in found
    [pattern] = {command[3] for command in proxy.commands if command.name == "SCAN"}
    assert pattern == b"queue:*|*"


def test_the_scan_goes_on_to_its_end_and_looks_at_lists_only(redis: redis_py.Redis, pool: Redis) -> None:
    lists = {keys.private_list("q", "host", pid, "0123456789ab") for pid in range(400)}
    for key in lists:
        redis.lpush(key, "x")
    redis.set("queue:q|host|9999|0123456789ab|0", "no list")
    for number in range(1000):
        redis.set(f"noise:{number}", 1)

    assert set(orphans.private_lists(pool)) == lists


def test_a_key_that_is_no_utf_8_is_found_and_can_be_read(redis: redis_py.Redis, pool: Redis) -> None:
    redis.lpush(b"queue:q|h\xff|1|n|0", b"job")

    [key] = orphans.private_lists(pool)

    assert orphans.newest(pool, key) == [b"job"]
    assert orphans.drain(pool, key, "q", None, [b"job"], [""], 3) == [Fate.MOVED]
    assert redis.lrange("queue:q", 0, -1) == [b"job"]
