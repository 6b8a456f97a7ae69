"""How often and how much Redis is asked: bounded by what is shown, not by what is there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import redis as redis_py

from tests.api.conftest import Fill, payload
from tests.support.proxy import Proxy
from wurk_django.api import DeadSet, Queue, RetrySet, ScheduledSet, Stats, WorkSet
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.storage import sorted_sets


@pytest.fixture
def watched(redis: redis_py.Redis, proxy: Proxy) -> Iterator[Config]:
    """A configuration whose commands the proxy counts; its connection is open and the scripts are known."""
    for script in (sorted_sets._page, sorted_sets._to_queue, sorted_sets._to_dead, sorted_sets._trim):
        redis.script_load(script.source)
    config = Config(redis=RedisOptions(proxy.url))
    config.redis.execute("PING")
    proxy.clear()
    yield config
    config.reset_redis_pools()


def sizes(proxy: Proxy, script: bytes) -> list[int]:
    """How many arguments each call of a script had, beside its name and number of keys."""
    return [len(command) - 3 for command in proxy.commands if command[:2] == (b"EVALSHA", script)]


@pytest.mark.oracle("safety:L3")
@pytest.mark.parametrize("number", [1, 60, 119])
def test_a_page_of_a_large_set_is_one_call_wherever_it_is(
    number: int, watched: Config, proxy: Proxy, fill: Fill
) -> None:
    fill("dead", 3000)

    assert len(DeadSet(watched).page(number)[2]) == 25

    assert proxy.round_trips == 1
    assert [command for command in proxy.commands if command[0] == b"ZRANGE"] == [
        (b"ZRANGE", b"dead", *(str(place).encode() for place in (25 * (number - 1), 25 * number - 1)), b"WITHSCORES")
    ]


@pytest.mark.oracle("safety:L3")
def test_an_iteration_reads_no_further_than_it_is_followed(watched: Config, proxy: Proxy, fill: Fill) -> None:
    fill("dead", 3000)

    assert len(list(islice(DeadSet(watched), 60))) == 60

    assert proxy.round_trips == 2


@pytest.mark.oracle("safety:L3")
def test_a_search_is_so_many_steps_of_a_thousand(watched: Config, proxy: Proxy, fill: Fill) -> None:
    fill("dead", 12_000)

    found = DeadSet(watched).search("nowhere", budget_s=60)

    assert found.looked_at == 10_000
    assert proxy.round_trips == 10
    assert {command[-1] for command in proxy.commands} == {b"1000"}


@pytest.mark.oracle("safety:L3")
def test_everything_is_retried_in_slices_of_bounded_calls(watched: Config, proxy: Proxy, fill: Fill) -> None:
    fill("dead", 3000)

    DeadSet(watched).retry_all()

    slices = sizes(proxy, sorted_sets._to_queue.sha)
    assert len(slices) == 12
    assert max(slices) <= 2 + 4 * 250
    assert proxy.round_trips <= 2 * 12 + 3


@pytest.mark.oracle("safety:L3")
def test_everything_is_deleted_in_slices_or_at_once(watched: Config, proxy: Proxy, fill: Fill) -> None:
    fill("dead", 3000)

    DeadSet(watched).bulk("delete").run()
    removals = [len(command) - 2 for command in proxy.commands if command[0] == b"ZREM"]
    assert removals == [250] * 12

    fill("dead", 3000)
    proxy.clear()
    DeadSet(watched).clear()
    assert proxy.commands == [(b"UNLINK", b"dead")]


@pytest.mark.oracle("safety:L3")
def test_killing_everything_trims_in_slices(watched: Config, proxy: Proxy, fill: Fill) -> None:
    fill("retry", 3000)

    RetrySet(watched).kill_all()

    assert max(sizes(proxy, sorted_sets._to_dead.sha)) <= 5 + 250
    assert len(sizes(proxy, sorted_sets._trim.sha)) == 2


def test_a_page_of_large_jobs_ends_early(redis: redis_py.Redis, watched: Config) -> None:
    large = "x" * 500_000
    redis.zadd("schedule", {payload(f"{number}", args=[large]): number for number in range(12)})

    page = sorted_sets.following(watched.redis, "schedule", float("-inf"))

    assert len(page) == 5, "the one that reaches the limit is the last one"
    assert len(list(ScheduledSet(watched))) == 12


@pytest.mark.oracle("safety:L4")
def test_ten_thousand_queues_are_told_of_in_three_round_trips(
    redis: redis_py.Redis, watched: Config, proxy: Proxy
) -> None:
    names = [f"q{number:05}" for number in range(10_000)]
    redis.sadd("queues", *names)
    redis.lpush("queue:q00007", "{}", "{}")

    assert next(iter(Stats(watched).queue_summaries)).name == "q00007"
    proxy.clear()
    assert next(iter(Stats(watched).queues)) == "q00007"
    asked = {command[0] for command in proxy.commands}

    assert b"LINDEX" not in {command[0] for command in proxy.commands if command[1] != b"queue:default"}
    assert asked <= {b"SMEMBERS", b"LLEN", b"LINDEX", b"MGET", b"ZCARD", b"SCARD"}
    assert proxy.round_trips <= 4 + 3
    assert len(Queue.all(watched)) == 10_000


def test_the_work_of_a_thousand_processes_is_two_round_trips(
    redis: redis_py.Redis, watched: Config, proxy: Proxy
) -> None:
    redis.sadd("processes", *(f"h:{number}:n" for number in range(1000)))
    proxy.clear()

    assert list(WorkSet(watched)) == []

    assert proxy.round_trips == 2
