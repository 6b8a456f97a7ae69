"""Pushes while Redis is away: what is kept, what is not, and what is delivered when it is back."""

from __future__ import annotations

from typing import Any

import pytest
import redis as redis_py

from tests.buffer.conftest import Outage, Producer, wait_for
from tests.client.conftest import Stored
from tests.support.faults import Answer, LoseReply, LoseRequest, named, touching
from tests.support.proxy import Proxy
from wurk_django import buffer
from wurk_django.buffer import push_buffer
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import Redis, RedisOptions
from wurk_django.errors import DialFailed, InvalidJob, RedisRefused, RedisUnavailable


class Spread:
    """Client middleware: even numbers go to the queue a, odd ones to b."""

    def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        payload["queue"] = "ab"[payload["args"][0] % 2]
        return call_next()


def numbers(stored: Stored, queue: str = "default") -> list[int]:
    return [job["args"][0] for job in stored.queue(queue)]


@pytest.mark.oracle("reliability:RP1")
def test_pushes_during_an_outage_return_their_jids_and_are_kept(
    producer: Producer, outage: Outage, stored: Stored
) -> None:
    outage.begin()

    jids = [producer.push(number) for number in range(3)]

    assert len(set(jids)) == 3
    assert [entry.payload["jid"] for entry in producer.buffer._entries] == jids
    assert stored.keys() == []
    assert producer.counts == []


@pytest.mark.oracle("reliability:RP2")
def test_the_next_push_delivers_what_was_kept_in_order_and_before_itself(
    producer: Producer, outage: Outage, stored: Stored
) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()

    producer.push(3)

    assert numbers(stored) == [0, 1, 2, 3]
    assert len(producer.buffer) == 0
    assert producer.counted("jobs.recovered.push") == 3
    assert producer.counted("jobs.enqueued") == 4


def test_a_push_during_the_outage_stays_behind_those_that_were_kept_before(producer: Producer, outage: Outage) -> None:
    outage.begin()
    for number in range(4):
        producer.push(number)
    assert producer.kept() == [0, 1, 2, 3]


def test_without_the_buffer_an_outage_is_an_error(proxy: Proxy, outage: Outage) -> None:
    config = Config(redis=RedisOptions(proxy.url))
    outage.begin()
    with pytest.raises(DialFailed):
        Client(config).push({"class": "Foo", "args": []})


@pytest.mark.oracle("reliability:RP3")
def test_of_a_bulk_push_only_the_queues_whose_answer_was_lost_are_kept(
    producer: Producer, proxy: Proxy, stored: Stored, redis: redis_py.Redis
) -> None:
    producer.config.client_middleware.add(Spread)
    proxy.on(touching("queue:b"), LoseRequest())

    jids = producer.bulk(0, 1, 2, 3)

    assert None not in jids
    assert numbers(stored, "a") == [0, 2]
    assert numbers(stored, "b") == []
    assert producer.kept() == [1, 3]
    assert producer.counted("jobs.enqueued") == 2
    proxy.clear()
    producer.bulk(4, 5)
    assert numbers(stored, "a") == [0, 2, 4]
    assert numbers(stored, "b") == [1, 3, 5]


def test_a_queue_that_refused_before_the_line_broke_is_not_taken_for_written(
    producer: Producer, proxy: Proxy, stored: Stored
) -> None:
    producer.config.client_middleware.add(Spread)
    proxy.on(touching("queue:a"), Answer("WRONGTYPE no"))
    proxy.on(touching("queue:b"), LoseRequest())

    producer.bulk(0, 1)

    assert producer.kept() == [0, 1]
    assert producer.counted("jobs.enqueued") == 0


def test_the_group_whose_answer_was_lost_may_arrive_twice_and_no_other(
    producer: Producer, proxy: Proxy, stored: Stored
) -> None:
    producer.push(0)
    proxy.on(named("LPUSH"), LoseReply())

    producer.push(1)
    producer.push(2)

    assert numbers(stored) == [0, 1, 1, 2]


@pytest.mark.oracle("reliability:RP4")
@pytest.mark.parametrize("tie", [{"bid": "b-1"}, {"unique_for": 60}])
def test_of_a_mixed_bulk_push_the_plain_jobs_are_kept_and_the_error_speaks_for_the_others(
    tie: dict[str, Any], producer: Producer, outage: Outage
) -> None:
    class Tie:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            if payload["args"] == [1]:
                payload.update(tie)
            return call_next()

    producer.config.client_middleware.add(Tie)
    outage.begin()

    with pytest.raises(RedisUnavailable) as lost:
        producer.bulk(0, 1, 2)

    assert isinstance(lost.value, DialFailed)
    assert producer.kept() == [0, 2]


@pytest.mark.oracle("reliability:RP8")
@pytest.mark.parametrize("code", ["READONLY", "OOM", "LOADING"])
def test_a_refusal_while_delivering_is_an_error_and_the_job_stays_at_the_head(
    code: str, producer: Producer, proxy: Proxy, outage: Outage, stored: Stored
) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()
    proxy.on(named("SADD", "LPUSH"), Answer(f"{code} no"), times=None)

    with pytest.raises(RedisRefused, match=code):
        producer.push(3)

    assert producer.kept() == [0, 1, 2]
    proxy.clear()
    producer.push(4)
    assert numbers(stored) == [0, 1, 2, 4]


@pytest.mark.parametrize("code", ["READONLY", "NOREPLICAS", "OOM", "LOADING", "MISCONF", "NOPERM"])
def test_a_push_that_redis_refuses_is_never_kept(code: str, producer: Producer, proxy: Proxy) -> None:
    proxy.on(named("SADD", "LPUSH"), Answer(f"{code} no"), times=None)
    with pytest.raises(RedisRefused):
        producer.push(1)
    assert len(producer.buffer) == 0


def test_a_wrong_type_at_one_queue_holds_up_no_other(
    producer: Producer, outage: Outage, stored: Stored, redis: redis_py.Redis
) -> None:
    outage.begin()
    producer.push(0, queue="broken")
    producer.push(1)
    producer.push(2, queue="broken")
    outage.end()
    redis.set("queue:broken", "no list")

    producer.push(3)

    assert numbers(stored) == [1, 3]
    assert sorted(producer.kept()) == [0, 2]
    assert [getattr(error, "code", "") for error in producer.errors] == ["WRONGTYPE"]
    redis.delete("queue:broken")
    producer.push(4)
    assert numbers(stored, "broken") == [0, 2]


def test_a_connection_that_breaks_while_delivering_stops_it_and_keeps_the_new_job_too(
    producer: Producer, proxy: Proxy, outage: Outage, stored: Stored
) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()
    proxy.on(named("LPUSH"), LoseRequest(), skip=1)

    producer.push(3)

    assert numbers(stored) == [0]
    assert producer.kept() == [1, 2, 3]
    producer.push(4)
    assert numbers(stored) == [0, 1, 2, 3, 4]


def test_a_scheduled_push_keeps_its_time(producer: Producer, outage: Outage, stored: Stored) -> None:
    outage.begin()
    producer.push(1, at=2_000_000_000)
    producer.bulk(2, 3, at=[2_000_000_001, 2_000_000_002])
    outage.end()

    producer.push(4)

    assert [(job["args"], at) for job, at in stored.schedule()] == [
        ([1], 2_000_000_000), ([2], 2_000_000_001), ([3], 2_000_000_002),
    ]  # fmt: skip
    assert numbers(stored) == [4]


def test_a_kept_job_is_what_it_was_when_it_was_pushed(producer: Producer, outage: Outage, stored: Stored) -> None:
    args: list[Any] = [[1]]
    outage.begin()
    producer.client.push({"class": "Foo", "args": args, "tags": ["a"]})
    args[0].append(2)
    outage.end()

    producer.push(3)

    kept, fresh = stored.queue()
    assert (kept["args"], kept["tags"]) == ([[1]], ["a"])
    assert [key for key in kept if key != "tags"] == list(fresh)


def test_what_redis_would_never_take_is_refused_while_it_is_away(producer: Producer, outage: Outage) -> None:
    outage.begin()
    producer.push(0)
    with pytest.raises(InvalidJob):
        producer.client.push({"class": "Foo", "args": ["x" * (2 << 20)]})
    assert producer.kept() == [0]


def test_client_middleware_runs_once_for_a_kept_job(producer: Producer, outage: Outage) -> None:
    seen: list[int] = []

    class Note:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            seen.append(payload["args"][0])
            return call_next()

    producer.config.client_middleware.add(Note)
    outage.begin()
    producer.push(0)
    outage.end()
    producer.push(1)
    assert seen == [0, 1]


def test_a_push_delivers_only_to_its_own_redis(
    producer: Producer, outage: Outage, redis_url: str, stored: Stored
) -> None:
    elsewhere = Redis(RedisOptions(redis_url), name="elsewhere")
    outage.begin()
    producer.push(0)

    with Client.via(elsewhere):
        producer.push(1)

    assert numbers(stored) == [1]
    assert producer.kept() == [0]
    elsewhere.close()


def test_jobs_for_another_redis_are_delivered_there_though_its_pool_is_closed(
    producer: Producer, outage: Outage, proxy: Proxy, stored: Stored
) -> None:
    with redis_py.Redis(port=proxy.port, db=7) as theirs:
        pool = Redis(RedisOptions(proxy.url.removesuffix("/0") + "/7"), name="theirs")
        outage.begin()
        with Client.via(pool):
            producer.push(0)
        pool.close()
        outage.end()

        producer.buffer.drain_all()

        assert len(producer.buffer) == 0
        assert stored.keys() == []
        assert theirs.llen("queue:default") == 1
        theirs.flushdb()


def test_jobs_are_delivered_though_the_pools_of_the_configuration_were_closed(
    producer: Producer, outage: Outage, stored: Stored
) -> None:
    outage.begin()
    producer.push(0)
    producer.config.reset_redis_pools()
    outage.end()

    producer.buffer.drain_all()

    assert numbers(stored) == [0]


def test_only_the_first_push_of_an_outage_is_tried_three_times(
    producer: Producer, outage: Outage, pauses: list[float]
) -> None:
    outage.begin()
    producer.push(0)
    assert len(pauses) == 2
    producer.push(1)
    producer.push(2)
    assert len(pauses) == 2


def test_delivering_leaves_no_connection_behind(producer: Producer, outage: Outage, proxy: Proxy) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()
    before = proxy.accepted
    producer.push(3)
    assert proxy.accepted == before + 2  # one to deliver, one of the pool
    wait_for(lambda: len(proxy.lines()) == 1, what="the end of the first")


def test_it_is_installed_once(producer: Producer) -> None:
    assert buffer.install(producer.config) is producer.buffer
    assert producer.config.hooks.handlers["exit"] == [push_buffer.close_all]


def test_a_push_costs_no_round_trip_more(producer: Producer, proxy: Proxy) -> None:
    producer.push(0)
    proxy.clear()
    producer.push(1)
    assert proxy.names() == ["SADD", "LPUSH"]
    assert proxy.round_trips == 1
