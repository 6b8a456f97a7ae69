"""Which job is claimed, from which queue, and in how many round trips."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.worker.rig import (
    Rig,
    blocked,
    enqueue,
    numbered,
    payload,
    private,
    queued,
    raws,
    stays,
    take,
    wait_for,
    warm,
)
from wurk_django.storage import queues
from wurk_django.worker import identity


def dispatch_calls(proxy: Proxy) -> list[tuple[bytes, ...]]:
    """The calls of the dispatch script so far."""
    sha = queues._dispatch.sha
    return [command for command in list(proxy.commands) if command[0] == b"EVALSHA" and command[1] == sha]


@pytest.mark.oracle("reliability:F1", "core:Q1", "core:D7")
def test_the_oldest_job_is_claimed_into_the_private_list_of_this_process(redis: redis_py.Redis, rig: Rig) -> None:
    older, newer = numbered(2)
    enqueue(redis, "basic", older, newer)
    dispatcher = rig.dispatcher(rig.config(["basic", "bar,3"]))

    [work] = take(dispatcher, 1)

    assert (work.lane.name, work.raw) == ("basic", older)
    assert queued(redis, "basic") == [newer]
    key = f"queue:basic|{identity.host()}|{os.getpid()}|{identity.NONCE}|0"
    assert redis.lrange(key, 0, -1) == [older]


@pytest.mark.oracle("core:Q1")
def test_a_job_that_is_given_back_is_next_again(redis: redis_py.Redis, rig: Rig) -> None:
    older, newer = numbered(2)
    enqueue(redis, "basic", older, newer)
    dispatcher = rig.dispatcher(rig.config(["basic", "bar,3"]))
    [work] = take(dispatcher, 1)

    assert dispatcher.requeue_running([work]) == 1

    assert queued(redis, "basic") == [older, newer]
    assert private(redis, "basic") == []


@pytest.mark.oracle("core:Q2")
def test_jobs_of_several_queues_go_back_to_where_they_came_from_the_oldest_first(
    redis: redis_py.Redis, rig: Rig
) -> None:
    first, second, third = numbered(3)
    enqueue(redis, "foo", first, second)
    enqueue(redis, "bar", third)
    dispatcher = rig.dispatcher(rig.config(["foo", "bar"]))
    works = take(dispatcher, 3)

    assert dispatcher.requeue_running(works) == 3

    assert queued(redis, "foo") == [first, second]
    assert queued(redis, "bar") == [third]
    assert private(redis, "foo") == private(redis, "bar") == []


@pytest.mark.oracle("core:Q3")
def test_without_queues_a_dispatcher_waits_and_does_not_spin(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = rig.config([], fetch_block=0.2)
    passes: list[float] = []
    monkeypatch.setattr(config.capsules["default"], "fetch_order", lambda: passes.append(time.monotonic()) or [])
    dispatcher = rig.dispatcher(config)

    taking = rig.take_in_thread(dispatcher)
    wait_for(lambda: len(passes) >= 3)
    dispatcher.quiet()

    assert taking.result() is None
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(passes))


@pytest.mark.oracle("reliability:F2")
@pytest.mark.parametrize("job_s", [1.0, 0.0001], ids=["in two passes", "in one pass"])
def test_claims_without_acknowledgement_pile_up_with_the_newest_left(
    job_s: float, redis: redis_py.Redis, rig: Rig
) -> None:
    dispatcher = rig.dispatcher()
    warm(redis, dispatcher, "default", job_s)
    first, second = numbered(2)
    enqueue(redis, "default", first, second)

    assert raws(take(dispatcher, 2)) == [first, second]

    assert private(redis) == [second, first]


@pytest.mark.oracle("reliability:F4")
def test_a_job_on_the_last_of_three_queues_is_found_in_two_round_trips(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    dispatcher = rig.dispatcher(rig.config(["a", "b", "c"], url=proxy.url))
    warm(redis, dispatcher, "c")
    raw = payload()
    enqueue(redis, "c", raw)
    proxy.clear()

    [work] = take(dispatcher, 1)

    assert (work.lane.name, work.raw) == ("c", raw)
    assert proxy.round_trips == 2
    assert proxy.names() == ["EVALSHA", "EVALSHA"], "no block"


@pytest.mark.oracle("reliability:F5")
def test_strict_queues_are_served_in_their_order(redis: redis_py.Redis, rig: Rig) -> None:
    enqueue(redis, "b", payload("work", "b"))
    enqueue(redis, "a", payload("work", "a"))
    dispatcher = rig.dispatcher(rig.config(["a", "b"]))

    [work] = take(dispatcher, 1)

    assert work.lane.name == "a"
    assert redis.llen("queue:b") == 1


@pytest.mark.oracle("reliability:F13")
def test_a_busy_first_queue_spares_redis_the_keys_of_the_other_ninety_nine(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    names = [f"q{number}" for number in range(100)]
    dispatcher = rig.dispatcher(rig.config(names, url=proxy.url))
    warm(redis, dispatcher, "q0")
    enqueue(redis, "q0", *numbered(3))
    proxy.clear()

    for work in take(dispatcher, 2):
        dispatcher.finish(work, 1.0)
    take(dispatcher, 1)

    calls = dispatch_calls(proxy)
    assert len(calls) == 3
    for call in calls:
        keys = call[3 : 3 + int(call[2])]
        public = [key for key in keys if key.startswith(b"queue:") and b"|" not in key]
        assert public == [b"queue:q0"]


@pytest.mark.oracle("reliability:F11", "safety:R14")
def test_a_flushed_script_cache_costs_one_reload_and_nothing_else(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    warm(redis, dispatcher, "default")
    [first, second] = numbered(2)
    enqueue(redis, "default", first, second)
    [work] = take(dispatcher, 1)
    dispatcher.finish(work, 1.0)
    redis.script_flush()
    proxy.clear()

    [next_work] = take(dispatcher, 1)

    assert proxy.names() == ["EVALSHA", "EVAL"]
    assert next_work.raw == second
    assert private(redis) == [second], "the acknowledgement was applied as well"


@pytest.mark.oracle("reliability:F12")
def test_weights_decide_the_share_of_each_queue_also_when_jobs_are_claimed_in_batches(
    redis: redis_py.Redis, rig: Rig
) -> None:
    weights = {"a": 4, "b": 3, "c": 2, "d": 1}
    claims = 3000
    for name in weights:
        enqueue(redis, name, *numbered(claims))
    dispatcher = rig.dispatcher(rig.config([f"{name},{weight}" for name, weight in weights.items()], 10))
    claimed: list[str] = []

    def work() -> None:
        while len(claimed) < claims and (taken := dispatcher.take()) is not None:
            claimed.append(taken.lane.name)
            dispatcher.finish(taken, 0.0005)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    shares = Counter(claimed)
    for name, weight in weights.items():
        assert abs(shares[name] / len(claimed) - weight / 10) < 0.05, shares
    for start in range(0, claims, 100):
        some = Counter(claimed[start : start + 100])
        assert abs(some["a"] / 100 - 0.4) < 0.25, "no bursts, so the order differs between passes"


@pytest.mark.oracle("reliability:F17")
def test_twenty_idle_threads_get_twenty_jobs_in_two_round_trips(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    dispatcher = rig.dispatcher(rig.config(concurrency=20, url=proxy.url, fetch_block=5))
    warm(redis, dispatcher, "default")
    takings = [rig.take_in_thread(dispatcher) for _ in range(20)]
    wait_for(lambda: blocked(redis) == 1)
    time.sleep(0.05)  # until all twenty wait
    proxy.clear()

    enqueue(redis, "default", *numbered(20))

    works = [taking.result() for taking in takings]
    assert len(set(raws(works))) == 20
    assert proxy.names() == ["EVALSHA"], "one job by the open block, nineteen by one call"


@pytest.mark.oracle("reliability:F8")
def test_acknowledgements_are_sent_before_a_dispatcher_waits_for_paused_queues(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    config = rig.config(["a", "b"], url=proxy.url, fetch_block=0.3)
    dispatcher = rig.dispatcher(config)
    enqueue(redis, "a", *numbered(2))
    [work] = take(dispatcher, 1)
    queues.pause(config.redis, "a")
    queues.pause(config.redis, "b")
    dispatcher.finish(work, 1.0)
    proxy.clear()

    started = time.monotonic()
    rig.take_in_thread(dispatcher)
    wait_for(lambda: private(redis, "a") == [])
    acknowledged = time.monotonic()
    wait_for(lambda: dispatch_calls(proxy))
    time.sleep(0.25)

    assert acknowledged - started < 0.2
    assert len(dispatch_calls(proxy)) == 1, "one call for the ack, then nothing for a poll interval"
    assert redis.llen("queue:a") == 1
    assert "BLMOVE" not in proxy.names()


@pytest.mark.oracle("reliability:F6")
def test_a_queue_paused_by_another_process_is_left_alone_and_its_running_jobs_finish(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wurk_django.worker.lanes.PAUSED_CACHE_S", 0.2)
    dispatcher = rig.dispatcher(rig.config(["a", "b"], fetch_block=0.2, url=proxy.url))
    enqueue(redis, "a", payload())
    [running] = take(dispatcher, 1)
    redis.sadd("paused", "a")
    proxy.clear()
    rig.take_in_thread(dispatcher)
    wait_for(lambda: "BLMOVE" in proxy.names()[proxy.names().index("SMEMBERS") :] if proxy.count("SMEMBERS") else False)

    late = payload()
    enqueue(redis, "a", late)
    dispatcher.finish(running, 0.0)

    wait_for(lambda: private(redis, "a") == [])
    assert stays(lambda: queued(redis, "a") == [late], 0.5)


@pytest.mark.oracle("reliability:F7")
def test_a_queue_paused_in_this_process_is_skipped_by_the_next_pass(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["a", "b"])
    dispatcher = rig.dispatcher(config)
    warm(redis, dispatcher, "a")
    enqueue(redis, "a", payload("work", "a"))
    enqueue(redis, "b", payload("work", "b"))

    queues.pause(config.redis, "a")
    [work] = take(dispatcher, 1)
    assert work.lane.name == "b"

    queues.unpause(config.redis, "a")
    [work] = take(dispatcher, 1)
    assert work.lane.name == "a"


def test_queues_that_are_paused_at_the_start_are_not_claimed_from_even_once(redis: redis_py.Redis, rig: Rig) -> None:
    redis.sadd("paused", "a")
    enqueue(redis, "a", payload())
    enqueue(redis, "b", payload("work", "b"))

    [work] = take(rig.dispatcher(rig.config(["a", "b"])), 1)

    assert work.lane.name == "b"


@pytest.mark.oracle("safety:R23")
def test_a_queue_of_a_wrong_type_is_reported_and_the_others_are_served(redis: redis_py.Redis, rig: Rig) -> None:
    redis.set("queue:broken", "text")
    raw = payload()
    enqueue(redis, "fine", raw)
    dispatcher = rig.dispatcher(rig.config(["broken", "fine"]))

    assert raws(take(dispatcher, 1)) == [raw]

    assert sum("queue:broken" in message for message in rig.messages()) == 1
    enqueue(redis, "fine", raw)
    take(dispatcher, 1)
    assert len(rig.errors) == 1, "left alone for a while"


@pytest.mark.oracle("reliability:A13")
def test_a_private_list_of_a_wrong_type_is_reported_and_its_jobs_stay_queued(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    redis.set(identity.private_list("broken", 0), "text")
    raw, other = numbered(2)
    enqueue(redis, "broken", raw)
    enqueue(redis, "fine", other)
    dispatcher = rig.dispatcher(rig.config(["broken", "fine"], url=proxy.url))

    assert raws(take(dispatcher, 1)) == [other]

    assert queued(redis, "broken") == [raw]
    assert "WRONGTYPE" in rig.messages()[0]
    assert proxy.count("EVAL") <= 1, "loaded once, not again and again"


@pytest.mark.oracle("safety:R23")
def test_acknowledgements_of_other_queues_pass_a_private_list_of_a_wrong_type(redis: redis_py.Redis, rig: Rig) -> None:
    enqueue(redis, "a", payload("work", "a"))
    enqueue(redis, "b", payload("work", "b"))
    dispatcher = rig.dispatcher(rig.config(["a", "b"]))
    works = take(dispatcher, 2)
    redis.set(identity.private_list("a", 0), "text")
    for work in works:
        dispatcher.finish(work, 1.0)

    last = payload()
    enqueue(redis, "b", last)

    assert raws(take(dispatcher, 1)) == [last]
    assert private(redis, "b") == [last]
