"""Acknowledgements: kept over an outage, sent in order, never lost, and always before a requeue."""

from __future__ import annotations

import logging
import threading

import pytest
import redis as redis_py

from tests.support.faults import Answer, Before, LoseReply, LoseRequest, script
from tests.support.proxy import Proxy
from tests.worker.rig import Recorder, Rig, enqueue, numbered, payload, private, queued, raws, scores, take, wait_for
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.storage import queues, sorted_sets
from wurk_django.worker import identity

dispatching = script(queues._dispatch.sha.decode())
requeueing = script(queues._requeue.sha.decode())
booking = script(sorted_sets._retry.sha.decode())


def times_sent(proxy: Proxy, raw: bytes) -> int:
    return sum(raw in command for command in list(proxy.commands))


@pytest.mark.oracle("reliability:A4")
def test_a_lost_answer_to_an_acknowledgement_does_not_run_the_job_again(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job(act=lambda *_: redis.set("ran", 1))
    manager = rig.manager(rig.config(url=proxy.url, concurrency=1))
    raw = payload("work", "once")
    lost = proxy.on(lambda command: dispatching(command) and raw in command, LoseReply())

    enqueue(redis, "default", raw)
    lost.wait()
    wait_for(lambda: manager.idle)
    enqueue(redis, "default", payload("work", "next"))
    wait_for(lambda: len(jobs.calls) == 2)

    assert jobs.calls == [("once",), ("next",)]
    wait_for(lambda: private(redis) == [])


@pytest.mark.oracle("reliability:A5")
def test_acknowledgements_are_kept_over_an_outage_and_each_is_sent_once_then(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, one_attempt: None
) -> None:
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    works = numbered(3)
    enqueue(redis, "default", *works)
    taken = take(dispatcher, 3)
    for work in taken:
        dispatcher.finish(work, 1.0)
    proxy.refuse = True
    proxy.reset_all()
    with pytest.raises(RedisUnavailable):
        dispatcher.flush()
    assert len(private(redis)) == 3

    proxy.refuse = False
    proxy.clear()
    dispatcher.flush()
    dispatcher.flush()

    assert private(redis) == []
    assert dispatcher.empty
    assert [times_sent(proxy, raw) for raw in works] == [1, 1, 1]


@pytest.mark.oracle("reliability:A6")
def test_a_hard_stop_removes_what_is_finished_and_gives_back_what_still_runs(redis: redis_py.Redis, rig: Rig) -> None:
    finished, running = numbered(2)
    waiting = payload("work", "waiting")
    enqueue(redis, "default", finished, running, waiting)
    dispatcher = rig.dispatcher()
    done, late = take(dispatcher, 2)
    dispatcher.finish(done, 1.0)

    assert dispatcher.requeue_running([late]) == 1

    assert queued(redis) == [running, waiting], "next to run; the finished one is nowhere"
    assert private(redis) == []


@pytest.mark.oracle("reliability:A6")
def test_a_worker_that_is_stopped_gives_its_late_job_back_and_keeps_no_finished_one(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    jobs.gated_job("slow")
    launcher = rig.launcher(timeout=0.3, concurrency=2)
    slow = payload("slow")
    enqueue(redis, "default", slow, *numbered(3))
    wait_for(lambda: len(jobs.calls) == 4)

    launcher.stop()

    assert queued(redis) == [slow]
    assert private(redis) == []


@pytest.mark.oracle("reliability:A7")
def test_a_job_acknowledged_before_its_requeue_stays_gone(redis: redis_py.Redis, rig: Rig) -> None:
    enqueue(redis, "default", payload())
    dispatcher = rig.dispatcher()
    works = take(dispatcher, 1)
    dispatcher.finish(works[0], 1.0)
    dispatcher.flush()

    assert dispatcher.requeue_running(works) == 0

    assert queued(redis) == private(redis) == []


@pytest.mark.oracle("reliability:A8")
@pytest.mark.parametrize("fault", [Answer("MISCONF cannot persist"), LoseRequest()], ids=["refused", "cut"])
def test_nothing_is_requeued_when_the_acknowledgements_before_it_fail(
    fault: Answer | LoseRequest, redis: redis_py.Redis, rig: Rig, proxy: Proxy, one_attempt: None
) -> None:
    enqueue(redis, "default", *numbered(2))
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    done, late = take(dispatcher, 2)
    dispatcher.finish(done, 1.0)
    proxy.on(dispatching, fault, times=None)

    with pytest.raises((RedisRefused, RedisUnavailable)):
        dispatcher.requeue_running([late])

    assert queued(redis) == []
    assert private(redis) == [late.raw, done.raw], "for the reaper"
    proxy.clear()


@pytest.mark.oracle("reliability:A9")
def test_acknowledgements_of_a_failed_flush_stay_in_front_of_later_ones(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    enqueue(redis, "default", *numbered(2))
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    older, younger = take(dispatcher, 2)
    dispatcher.finish(older, 1.0)
    proxy.on(dispatching, Before(lambda: dispatcher.finish(younger, 1.0), forward=False), times=1)
    proxy.on(dispatching, Answer("MISCONF cannot persist"))
    with pytest.raises(RedisRefused):
        dispatcher.flush()
    proxy.clear()

    dispatcher.flush()

    [call] = [command for command in list(proxy.commands) if dispatching(command)]
    assert call.index(older.raw) < call.index(younger.raw)
    assert private(redis) == []


@pytest.mark.oracle("reliability:A10")
def test_a_failure_that_cannot_be_booked_keeps_its_job_and_is_told(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    raw = payload()
    proxy.on(booking, Answer("MISCONF cannot persist"))
    rig.manager(rig.config(url=proxy.url))

    enqueue(redis, "default", raw)
    wait_for(lambda: rig.errors)

    assert private(redis) == [raw]
    assert redis.exists("retry", "dead") == 0
    assert "Internal exception!: MISCONF" in rig.messages()[0]


@pytest.mark.oracle("reliability:A15", "reliability:A14")
@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest()], ids=["answer lost", "request lost"])
def test_a_retry_whose_booking_is_cut_stands_in_exactly_one_place(
    fault: LoseReply | LoseRequest, redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    cut = proxy.on(booking, fault)
    manager = rig.manager(rig.config(url=proxy.url))

    enqueue(redis, "default", payload("work", jid="one"))
    cut.wait()
    wait_for(lambda: manager.idle)

    assert [job["jid"] for job, _ in scores(redis, "retry")] == ["one"]
    assert queued(redis) == private(redis) == []


@pytest.mark.oracle("reliability:A14", "safety:C1")
@pytest.mark.parametrize("retry", [True, 0], ids=["retry", "death"])
def test_a_failure_of_a_job_that_was_taken_over_meanwhile_books_nothing(
    retry: bool | int, redis: redis_py.Redis, rig: Rig, jobs: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    reaped = threading.Event()

    def fail(*_: object) -> None:
        assert reaped.wait(5)
        raise ValueError("boom")

    jobs.job(act=fail)
    manager = rig.manager()
    raw = payload(retry=retry)
    enqueue(redis, "default", raw)
    wait_for(lambda: jobs.calls)
    redis.lmove(identity.private_list("default", 0), "queue:elsewhere", "LEFT", "LEFT")

    with caplog.at_level(logging.WARNING, "wurk"):
        reaped.set()
        wait_for(lambda: manager.idle)

    assert redis.exists("retry", "dead") == 0
    assert queued(redis, "elsewhere") == [raw]
    assert sum("its other run decides" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.oracle("reliability:A12")
def test_a_flushed_script_cache_does_not_keep_running_jobs_from_going_back(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    waiting = numbered(3)
    enqueue(redis, "default", *waiting)
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    works = take(dispatcher, 3)
    redis.script_flush()
    proxy.clear()

    assert dispatcher.requeue_running(works) == 3

    assert queued(redis) == waiting
    assert proxy.names() == ["EVALSHA"] * 3 + ["EVAL"] * 3


@pytest.mark.oracle("reliability:A13")
def test_a_wrong_type_on_the_way_back_is_an_error_and_not_a_reload(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    enqueue(redis, "default", payload())
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))
    works = take(dispatcher, 1)
    redis.set(identity.private_list("default", 0), "text")
    redis.script_load(queues._requeue.source)
    proxy.clear()

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        dispatcher.requeue_running(works)

    assert proxy.names() == ["EVALSHA"]
    assert queued(redis) == []


@pytest.mark.oracle("safety:S-11")
def test_jobs_are_removed_by_the_bytes_that_were_read_however_they_are_spelled(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    odd = [
        b' { "class" : "work" ,\n "args" : [ 1.50, "\\u00e9" ], "jid":"a", "retry": true }\t',
        b'{"jid":"b","retry":true,"args":[1e3,"\\/"],"class":"\\u0077ork"}',
        b'{"class":"nothing","class":"work","args":[],"jid":"c"}',
    ]
    manager = rig.manager()

    enqueue(redis, "default", *odd)
    wait_for(lambda: len(jobs.calls) == 3)
    wait_for(lambda: manager.idle)

    assert private(redis) == []
    assert sorted(jobs.calls, key=len) == [(), (1.5, "é"), (1000.0, "/")]


def test_a_job_that_comes_twice_with_the_same_bytes_is_acknowledged_once_for_each_run(
    redis: redis_py.Redis, rig: Rig
) -> None:
    twin = payload(jid="twin")
    enqueue(redis, "default", twin, twin)
    dispatcher = rig.dispatcher()
    works = take(dispatcher, 2)

    dispatcher.finish(works[0], 1.0)
    dispatcher.flush()

    assert private(redis) == raws(works[1:])
