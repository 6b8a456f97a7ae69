"""The sets `schedule`, `retry` and `dead`: reading them while they move, finding, and everything at once."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.conftest import Fill, payload
from tests.support.servers import RedisServer
from wurk_django.api import DeadSet, JobSet, RetrySet, ScheduledSet
from wurk_django.config import Config, Options
from wurk_django.connection import Redis, RedisOptions
from wurk_django.storage import sorted_sets


@pytest.mark.oracle("core:Z1")
def test_entries_come_the_highest_score_first(config: Config, fill: Fill) -> None:
    fill("schedule", 51)

    scores = [entry.score for entry in ScheduledSet(config)]

    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 51


@pytest.mark.oracle("core:Z2")
def test_every_entry_is_met_when_each_is_deleted_on_the_way(config: Config, fill: Fill) -> None:
    fill("schedule", 51)
    scheduled = ScheduledSet(config)

    assert sum(entry.delete() for entry in scheduled) == 51
    assert scheduled.size == 0


@pytest.mark.oracle("core:Z2")
def test_every_entry_is_met_when_each_is_moved_on_the_way(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("schedule", 200)
    scheduled = ScheduledSet(config)

    assert sum(entry.add_to_queue() for entry in scheduled) == 200
    assert scheduled.size == 0
    assert redis.llen("queue:default") == 200


@pytest.mark.parametrize("score_step", [0.0, 1.0])
def test_what_stays_is_met_once_while_others_come_and_go(
    score_step: float, redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    staying = fill("retry", 300, 1000, score_step)
    goers = fill_more(redis, "goer", 200)
    met = []

    for number, entry in enumerate(RetrySet(config)):
        met.append(entry.value)
        if number < 200:
            redis.zrem("retry", goers[number])
            redis.zadd("retry", {f"newcomer {number}": 999 if number % 2 else 5000})

    assert sorted(raw for raw in met if raw in set(staying)) == staying


def fill_more(redis: redis_py.Redis, name: str, count: int) -> list[bytes]:
    raws = [f"{name} {number}".encode() for number in range(count)]
    redis.zadd("retry", {raw: 1000.0 + number for number, raw in enumerate(raws)})
    return raws


@settings(max_examples=60, deadline=None)
@given(
    members=st.dictionaries(st.binary(max_size=4), st.sampled_from([1.0, 1.5, 2.0]), max_size=30),
    place=st.tuples(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0]), st.none() | st.binary(max_size=4)),
    up=st.booleans(),
    count=st.integers(1, 40),
)
def test_a_page_follows_its_place_whether_or_not_that_is_still_there(
    redis_server: RedisServer,
    members: dict[bytes, float],
    place: tuple[float, bytes | None],
    up: bool,
    count: int,
) -> None:
    pool = Redis(RedisOptions(redis_server.url))
    with redis_server.client() as client:
        client.delete("paged")
        if members:
            client.zadd("paged", members)
        score, member = place

        found = sorted_sets.following(pool, "paged", score, member, up=up, count=count)
    pool.close()

    ordered = sorted((score, raw) for raw, score in members.items())
    if member is None:
        expected = [each for each in ordered if (each[0] >= score if up else each[0] <= score)]
    else:
        expected = [each for each in ordered if (each > place if up else each < place)]
    expected = expected if up else expected[::-1]
    assert [(each.score, each.raw) for each in found] == expected[:count]


@pytest.mark.oracle("core:Z3")
def test_entries_of_one_score_are_fetched_all_or_by_jid(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("bob1"): 500.5, payload("bob2"): 500.5, payload("bob3"): 501})

    assert len(RetrySet(config).fetch(500.5)) == 2
    assert [entry.jid for entry in RetrySet(config).fetch(500.5, "bob1")] == ["bob1"]


@pytest.mark.oracle("core:Z4")
def test_entries_of_a_range_of_scores_are_fetched_all_or_by_jid(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("schedule", {payload("a"): 10, payload("b"): 11, payload("c"): 12})

    assert [entry.jid for entry in ScheduledSet(config).fetch((10, 11))] == ["a", "b"]
    assert [entry.jid for entry in ScheduledSet(config).fetch((10, 11), "b")] == ["b"]


@pytest.mark.oracle("core:Z9")
def test_all_dead_jobs_are_retried_and_all_retries_killed(redis: redis_py.Redis, redis_url: str, fill: Fill) -> None:
    config = Config(Options(dead_max_jobs=1000), RedisOptions(redis_url))
    fill("dead", 1000)
    fill("retry", 500)

    retried = DeadSet(config).retry_all()
    assert (retried.done, redis.zcard("dead"), redis.llen("queue:default")) == (1000, 0, 1000)

    killed = RetrySet(config).kill_all()
    assert (killed.done, redis.zcard("dead"), redis.zcard("retry")) == (500, 500, 0)
    config.reset_redis_pools()


@pytest.mark.oracle("core:D12")
def test_a_dead_set_is_trimmed_once_after_all_were_killed(redis: redis_py.Redis, redis_url: str, fill: Fill) -> None:
    config = Config(Options(dead_max_jobs=100), RedisOptions(redis_url))
    fill("retry", 600)

    RetrySet(config).kill_all()

    assert (redis.zcard("retry"), redis.zcard("dead")) == (0, 99)
    config.reset_redis_pools()


@pytest.mark.oracle("core:Z10")
def test_a_scan_finds_by_text_or_glob_in_the_json(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", 300)
    redis.zadd("retry", {payload("x", args=["a test"]): 1, payload("y", args=["tested"]): 2})

    assert len(list(RetrySet(config).scan("ApiJob"))) == 302
    assert {entry.jid for entry in RetrySet(config).scan("*test*")} == {"x", "y"}
    assert list(RetrySet(config).scan("nowhere")) == []


@pytest.mark.oracle("core:Z11")
def test_a_deletion_needs_score_and_jid(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("a", args=["b"]): 5, payload("b"): 5})
    delete: Any = RetrySet(config).delete

    with pytest.raises(TypeError):
        delete(5)

    assert delete(5, "b")
    assert not delete(5, "b")
    assert redis.zrange("retry", 0, -1) == [payload("a", args=["b"])]


def test_a_jid_in_the_arguments_of_another_job_is_no_hit(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {payload("other", args=["a[b]c*"]): 1, payload("a[b]c*"): 2, payload("abcd"): 3})

    found = RetrySet(config).find_job("a[b]c*")

    assert found
    assert found.score == 2
    assert RetrySet(config).find_job("a") is None


def test_a_search_stops_at_its_budget_and_goes_on_from_its_cursor(config: Config, fill: Fill) -> None:
    fill("dead", 3000)
    dead = DeadSet(config)

    first = dead.search("ApiJob", max_entries=1000)
    assert first.looked_at == 1000
    assert first.cursor
    assert 900 <= len(first.entries) < 2900

    jids, cursor = {entry.jid for entry in first.entries}, first.cursor
    while cursor:
        found = dead.search("ApiJob", cursor, max_entries=1000)
        jids |= {entry.jid for entry in found.entries}
        cursor = found.cursor
    assert len(jids) == 3000

    assert dead.search("ApiJob", budget_s=0).looked_at == 1000, "one step, and then the time is over"


def test_pages_tell_their_number_and_the_total(config: Config, fill: Fill) -> None:
    fill("dead", 30)

    number, total, entries = DeadSet(config).page(2)
    assert (number, total) == (2, 30)
    assert [entry.score for entry in entries] == [1025.0 + place for place in range(5)]
    assert [entry.score for entry in DeadSet(config).page(0, 2, newest_first=True)[2]] == [1029.0, 1028.0]
    assert RetrySet(config).page(3) == (1, 0, [])


def test_a_set_is_cleared_and_an_entry_deleted_by_its_bytes(redis: redis_py.Redis, config: Config) -> None:
    raw = b' {"jid" : "odd"}'
    redis.zadd("dead", {raw: 1, b"other": 2})

    assert DeadSet(config).delete_by_value(raw)
    assert not DeadSet(config).delete_by_value(raw)
    assert DeadSet(config).size == 1
    assert DeadSet(config).clear()
    assert not redis.exists("dead")


def test_a_payload_is_scheduled_as_it_is(redis: redis_py.Redis, config: Config) -> None:
    JobSet("schedule", config).schedule(12.5, {"class": "A", "args": []})

    assert redis.zrange("schedule", 0, -1, withscores=True) == [(b'{"class":"A","args":[]}', 12.5)]


# --- the dead set -----------------------------------------------------------------------------------------------------


@pytest.fixture
def deaths(config: Config) -> list[tuple[dict[str, Any], BaseException]]:
    """What the death handlers of the configuration were told."""
    told: list[tuple[dict[str, Any], BaseException]] = []
    config.death_handlers.append(lambda job, error: told.append((job, error)))
    return told


@pytest.mark.oracle("core:K6", "reliability:D4")
def test_a_kill_tells_the_death_handlers_unless_it_shall_not(
    redis: redis_py.Redis, config: Config, deaths: list[tuple[dict[str, Any], BaseException]]
) -> None:
    dead, error = DeadSet(config), KeyError("mine")

    dead.kill(payload("silent"), notify_failure=False)
    assert deaths == []

    dead.kill(payload("told"))
    [(job, told)] = deaths
    assert job["jid"] == "told"
    assert str(told) == "Job killed by API"
    assert isinstance(told, RuntimeError)
    assert told.__traceback__

    dead.kill(payload("with"), ex=error)
    assert deaths[1][1] is error
    assert redis.zcard("dead") == 3


@pytest.mark.oracle("core:D11")
def test_a_broken_death_handler_stops_neither_the_kill_nor_the_others(redis: redis_py.Redis, config: Config) -> None:
    told: list[str] = []
    reported: list[BaseException] = []
    config.error_handlers[:] = [lambda error, _context: reported.append(error)]
    config.death_handlers.append(lambda job, _error: 1 / 0)  # type: ignore[arg-type, return-value]
    config.death_handlers.append(lambda job, _error: told.append(job["jid"]))

    assert DeadSet(config).kill(payload("a"))

    assert told == ["a"]
    assert [type(error) for error in reported] == [ZeroDivisionError]
    assert redis.zrange("dead", 0, -1) == [payload("a")]


def test_what_is_no_job_is_killed_byte_for_byte_and_no_handler_is_told(
    redis: redis_py.Redis, config: Config, deaths: list[tuple[dict[str, Any], BaseException]]
) -> None:
    for raw in (b"\xff{", b"[1]"):
        assert DeadSet(config).kill(raw)

    assert set(redis.zrange("dead", 0, -1)) == {b"\xff{", b"[1]"}
    assert deaths == []


def test_a_dead_set_is_trimmed_by_limits_of_the_caller(redis: redis_py.Redis, config: Config) -> None:
    now = time.time()
    redis.zadd("dead", {json.dumps(number): now - 100 + number for number in range(20)})

    assert DeadSet(config).trim(max_jobs=11) == 10
    assert DeadSet(config).trim(timeout_s=84.5) == 4
    assert DeadSet(config).trim() == 4
