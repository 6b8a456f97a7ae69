"""The threads of a capsule: how many, replaced when they die, wound down within the timeout."""

from __future__ import annotations

import logging
import threading
import time

import pytest
import redis as redis_py

from tests.support.faults import After, Delay, named, script
from tests.support.proxy import Proxy
from tests.worker.rig import (
    Recorder,
    Rig,
    blocked,
    enqueue,
    numbered,
    payload,
    private,
    queued,
    stays,
    take,
    threads,
    wait_for,
)
from wurk_django import current_job
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError
from wurk_django.storage import queues, sorted_sets
from wurk_django.worker.control import Shutdown

dispatching = script(queues._dispatch.sha.decode())


def processors() -> set[str]:
    return {name for name in threads() if name.rpartition("-")[2].isdecimal()}


class Exit(BaseException):
    """What a host's error handler must not raise, and does."""


@pytest.fixture
def dying(rig: Rig, jobs: Recorder) -> Config:
    """A configuration whose error handler takes the thread down that reports to it."""

    def die(_error: BaseException, _context: object) -> None:
        raise Exit

    jobs.failing_job(ValueError("boom"), "fails")
    config = rig.config(concurrency=2)
    config.error_handlers.append(die)
    return config


@pytest.mark.oracle("core:L1")
def test_a_capsule_has_as_many_threads_as_its_concurrency(rig: Rig) -> None:
    rig.manager(rig.config(concurrency=5))

    assert len(processors()) == 5


def test_a_concurrency_below_one_is_refused(rig: Rig) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        rig.config(concurrency=0)


@pytest.mark.oracle("core:L2")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_replaced_and_its_job_is_accounted_for(
    dying: Config, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    manager = rig.manager(dying)
    first = processors()

    for _ in range(3):
        enqueue(redis, "default", payload("fails"))
    wait_for(lambda: redis.zcard("retry") == 3)
    enqueue(redis, "default", *numbered(5))
    wait_for(lambda: len(jobs.calls) == 8)

    wait_for(lambda: len(processors()) == 2)
    assert processors() != first
    wait_for(lambda: manager.idle, what="the job of a dead thread counts as held, and")
    assert private(redis) == []


@pytest.mark.oracle("core:L2")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_while_the_worker_is_quiet_is_not_replaced(
    dying: Config, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    gate = threading.Event()

    def fail(*_: object) -> None:
        gate.wait(5)
        raise ValueError("boom")

    jobs.job("late", fail)
    manager = rig.manager(dying)
    enqueue(redis, "default", payload("late"))
    wait_for(lambda: jobs.calls)
    manager.quiet()
    wait_for(lambda: len(processors()) == 1)

    gate.set()

    wait_for(lambda: not processors())
    assert stays(lambda: not processors(), 0.1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_job_of_a_thread_that_dies_before_its_outcome_is_booked_runs_again(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wurk_django.worker.dispatcher.RECONCILE_S", 0.2)

    def die(payload: object, _error: BaseException) -> None:
        if len(jobs.calls) == 1:
            raise Exit

    jobs.failing_job(ValueError("boom"), "fails")
    config = rig.config()
    config.death_handlers.append(die)
    rig.manager(config)

    enqueue(redis, "default", payload("fails", retry=0))

    wait_for(lambda: redis.zcard("dead") == 1)
    assert len(jobs.calls) == 2


@pytest.mark.oracle("safety:C14")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("message", ["start", "done", "fail"])
def test_a_log_that_cannot_be_written_does_not_decide_the_fate_of_a_job(
    message: str, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == message:
                raise OSError(28, "No space left on device")

    jobs.job()
    jobs.failing_job(ValueError("boom"), "fails")
    logger = logging.getLogger("wurk.job")
    handler = Full()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        manager = rig.manager(rig.config(concurrency=1))
        enqueue(redis, "default", payload("work", 1), payload("fails", 2))
        wait_for(lambda: redis.zcard("retry"))
        wait_for(lambda: manager.idle)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

    assert jobs.calls == [(1,), (2,)]
    assert redis.zcard("retry") == 1
    assert private(redis) == []


def test_a_job_claimed_by_a_pass_that_was_under_way_when_the_worker_went_quiet_does_not_start(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.job()
    gate = jobs.gated_job("slow")
    heard = threading.Event()
    proxy.on(named("BLMOVE"), After(heard.wait))
    enqueue(redis, "default", payload("slow"))
    manager = rig.manager(rig.config(url=proxy.url, fetch_block=5))
    wait_for(lambda: blocked(redis) == 1 and jobs.calls)
    proxy.on(dispatching, After(heard.wait))
    raws = numbered(2)
    enqueue(redis, "default", *raws)
    gate.set()
    wait_for(lambda: private(redis) == raws[::-1], what="one claim by the leader, one by the freed thread")

    manager.quiet()
    heard.set()

    wait_for(lambda: not processors())
    assert jobs.calls == [()]
    assert sorted(queued(redis)) == sorted(raws)
    assert private(redis) == []


@pytest.mark.oracle("core:L3")
def test_a_job_that_outlasts_the_timeout_is_back_on_its_queue_and_counted(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.gated_job("slow")
    launcher = rig.launcher(timeout=0.3)
    raw, waiting = payload("slow", jid="late"), payload("slow", jid="waiting")
    enqueue(redis, "default", raw)
    wait_for(lambda: jobs.calls)

    launcher.quiet()
    enqueue(redis, "default", waiting)
    launcher.stop()

    assert queued(redis) == [raw, waiting]
    assert private(redis) == []
    assert redis.exists("retry", "dead", "processes") == 0
    assert (redis.get("stat:processed"), redis.get("stat:failed")) == (b"1", b"1")


def test_a_job_that_ends_within_the_timeout_is_waited_for(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    gate = jobs.gated_job("slow")
    launcher = rig.launcher(timeout=5)
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: jobs.calls)
    threading.Timer(0.2, gate.set).start()

    started = time.monotonic()
    launcher.stop()

    assert 0.1 < time.monotonic() - started < 3
    assert queued(redis) == private(redis) == []
    assert redis.get("stat:failed") == b"0"


def test_a_job_may_clean_up_when_it_is_interrupted_and_its_clean_up_ends_in_time(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    cleaned: list[str] = []

    def work(*_: object) -> None:
        try:
            while True:
                time.sleep(0.005)
        except Exception:
            cleaned.append("swallowed")
        finally:
            time.sleep(0.1)
            cleaned.append("cleaned")

    jobs.job(act=work)
    launcher = rig.launcher(timeout=0.1)
    enqueue(redis, "default", payload())
    wait_for(lambda: jobs.calls)

    launcher.stop()

    assert cleaned == ["cleaned"], "a shutdown is no Exception"
    assert redis.llen("queue:default") == 1


def test_a_job_that_swallows_the_shutdown_runs_elsewhere_and_is_not_acknowledged_twice(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    def work(*_: object) -> None:
        try:
            while True:
                time.sleep(0.005)
        except BaseException:
            return

    jobs.job(act=work)
    raw = payload()
    launcher = rig.launcher(timeout=0.1)
    enqueue(redis, "default", raw)
    wait_for(lambda: jobs.calls)

    launcher.stop()

    assert queued(redis) == [raw]


@pytest.mark.oracle("reliability:A15")
def test_a_hard_stop_does_not_cut_the_booking_of_a_failure_short(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    booking = proxy.on(script(sorted_sets._retry.sha.decode()), Delay(request_s=0.5))
    launcher = rig.launcher(rig.config(url=proxy.url, timeout=0.1))
    raw = payload(jid="one")
    enqueue(redis, "default", raw)
    wait_for(lambda: booking.hits)

    launcher.stop()

    assert redis.llen("queue:default") + redis.zcard("retry") == 1
    assert private(redis) == []
    assert not any("Shutdown" in message for message in rig.messages())


def test_what_a_job_leaves_in_the_context_is_not_seen_by_the_next(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    seen: list[object] = []

    def work(*_: object) -> None:
        job = current_job()
        assert job is not None
        seen.append((job.jid, job.name, job.queue, job.retry_count))

    jobs.job(act=work)
    manager = rig.manager(rig.config(["mail"], 1))

    enqueue(redis, "mail", payload(jid="a", retry_count=3), payload(jid="b", queue="default"))
    wait_for(lambda: len(seen) == 2)
    wait_for(lambda: manager.idle)

    assert seen == [("a", "work", "mail", 3), ("b", "work", "mail", None)]
    assert current_job() is None


def test_hooks_of_the_host_run_before_and_after_each_job_in_its_thread(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    order: list[tuple[str, int]] = []
    jobs.job(act=lambda *_: order.append(("job", threading.get_ident())))
    jobs.failing_job(ValueError("boom"), "fails")
    config = rig.config(concurrency=1)
    config.around_job = (lambda: order.append(("hook", threading.get_ident())),)
    manager = rig.manager(config)

    enqueue(redis, "default", payload(), payload("fails"))
    wait_for(lambda: redis.zcard("retry"))
    wait_for(lambda: manager.idle)

    assert [name for name, _ in order] == ["hook", "job", "hook", "hook", "hook"]
    assert len({ident for _, ident in order}) == 1


def test_a_clean_up_hook_that_fails_is_told_and_the_job_has_succeeded(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    def hook() -> None:
        if jobs.calls:
            raise RuntimeError("the database is gone")

    jobs.job()
    config = rig.config()
    config.around_job = (hook,)
    manager = rig.manager(config)

    enqueue(redis, "default", payload())
    wait_for(lambda: rig.errors)
    wait_for(lambda: manager.idle)

    assert rig.messages() == ["after a job: the database is gone"]
    assert redis.exists("retry", "dead") == 0
    assert private(redis) == []


@pytest.mark.oracle("reports:P03")
def test_a_job_stopped_between_its_claim_and_its_start_is_back_on_its_queue(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    entered = threading.Event()

    def hook() -> None:
        if entered.is_set():
            return
        entered.set()
        while True:
            time.sleep(0.005)

    jobs.job()
    config = rig.config(timeout=0.1)
    config.around_job = (hook,)
    launcher = rig.launcher(config)
    raw = payload()
    enqueue(redis, "default", raw)
    assert entered.wait(5)

    launcher.stop()

    assert jobs.calls == []
    assert queued(redis) == [raw]
    assert private(redis) == []
    assert redis.exists("retry", "dead") == 0


def test_a_stopped_dispatcher_hands_out_nothing_more(redis: redis_py.Redis, rig: Rig) -> None:
    dispatcher = rig.dispatcher()
    enqueue(redis, "default", *numbered(2))
    take(dispatcher, 1)
    dispatcher.quiet()

    assert dispatcher.take() is None
    assert redis.llen("queue:default") == 1


def test_shutdown_is_not_an_exception() -> None:
    assert not issubclass(Shutdown, Exception)
