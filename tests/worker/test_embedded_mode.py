"""A worker inside a host's process: the host starts it, steers it and keeps what is its own."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time

import pytest
import redis as redis_py

from tests.worker.rig import QUICK, Recorder, Rig, enqueue, payload, private, threads, wait_for
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import ConfigurationError, WurkError
from wurk_django.storage import processes
from wurk_django.worker import identity
from wurk_django.worker.embedded import Embedded

ME = identity.identity()


class Broken:
    """A component that cannot start; whatever was started before it must be stopped again."""

    def start(self) -> None:
        raise ValueError("the last component")

    def quiet(self) -> None: ...

    def stop(self) -> None: ...


def test_it_runs_jobs_and_leaves_signals_and_exit_to_its_host(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)]
    jobs.job()
    worker = Embedded(rig.config())
    worker.run()
    try:
        enqueue(redis, "default", payload("work", 1))
        wait_for(lambda: jobs.calls == [(1,)])
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)] == before
        assert json.loads(redis.hget(ME, "info"))["embedded"] is True

        processes.send_signal(rig.config().redis, ME, "TERM")
        wait_for(lambda: not redis.exists(f"{ME}-signals"), what="the beat that reads the signal")
        enqueue(redis, "default", payload("work", 2))
        wait_for(lambda: jobs.calls == [(1,), (2,)], what="a job after a signal that only the host may act on")

        worker.quiet()
        enqueue(redis, "default", payload("work", 3))
    finally:
        worker.stop()
    wait_for(lambda: threads() == [])
    assert not redis.exists(ME)
    assert len(jobs.calls) == 2
    worker.stop()


def test_without_capsules_it_has_two_threads_for_the_default_queue(redis: redis_py.Redis, redis_url: str) -> None:
    config = Config(QUICK, RedisOptions(redis_url))
    worker = Embedded(config)
    worker.run()
    try:
        assert (config.total_concurrency, config.queue_names()) == (2, ["default"])
        assert redis.hget(ME, "concurrency") == b"2"
    finally:
        worker.stop()


def test_a_host_may_beat_itself(redis: redis_py.Redis, rig: Rig) -> None:
    worker = Embedded(rig.config(heartbeat_interval=0.05))
    worker.run(async_beat=False)
    try:
        first = redis.hget(ME, "beat")
        time.sleep(0.2)
        assert redis.hget(ME, "beat") == first

        worker.heartbeat()

        assert redis.hget(ME, "beat") != first
    finally:
        worker.stop()


@pytest.mark.oracle("reliability:SW11")
def test_a_start_that_fails_leaves_nothing_behind_and_shows_the_first_error(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = rig.config(health_check="127.0.0.1:0", leader_interval=0.01)
    config.component_makers.append(lambda _running: (Broken(),))
    worker = Embedded(config)

    with pytest.raises(ValueError, match="the last component"):
        worker.run()

    wait_for(lambda: threads() == [])
    assert not redis.exists(ME, "processes", "dear-leader")
    assert private(redis) == []
    with pytest.raises(ConfigurationError, match="does not run"):
        worker.quiet()

    # the next one may start
    again = Embedded(rig.config())
    again.run()
    again.stop()


@pytest.mark.oracle("reliability:SW11")
@pytest.mark.filterwarnings("error")
def test_a_start_that_fails_at_the_health_listener_leaves_nothing_behind(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def no_more_threads(thread: threading.Thread) -> None:
        if thread.name == "wurk-health":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_more_threads)

    with pytest.raises(RuntimeError, match="can't start"):
        Embedded(rig.config(health_check="127.0.0.1:0")).run()

    wait_for(lambda: threads() == [])
    gc.collect()  # a socket that nobody closed would be an error now
    assert not redis.exists(ME, "processes", "dear-leader")
    assert rig.errors == []


@pytest.mark.oracle("reliability:SW11")
def test_a_startup_handler_that_fails_aborts_the_start(redis: redis_py.Redis, rig: Rig) -> None:
    def fail() -> None:
        raise ValueError("in a hook")

    config = rig.config()
    config.hooks.on("startup", fail)

    with pytest.raises(ValueError, match="in a hook"):
        Embedded(config).run()

    wait_for(lambda: threads() == [])
    assert not redis.exists(ME)


def test_a_server_that_cannot_be_used_is_told_before_anything_starts(rig: Rig) -> None:
    worker = Embedded(rig.config(url="redis://127.0.0.1:1/0"))

    with pytest.raises(WurkError, match="cannot be used"):
        worker.run()

    wait_for(lambda: threads() == [])


def test_one_at_a_time_in_a_process(rig: Rig) -> None:
    first, second = Embedded(rig.config()), Embedded(rig.config())
    first.run()
    try:
        with pytest.raises(ConfigurationError, match="already"):
            second.run()
    finally:
        first.stop()
    second.run()
    second.stop()


def test_a_configuration_belongs_to_one_worker(rig: Rig) -> None:
    config = rig.config()
    config.freeze()

    with pytest.raises(ConfigurationError, match="belongs to a worker"):
        Embedded(config)


def test_a_child_of_the_host_may_have_its_own(redis: redis_py.Redis, rig: Rig, redis_url: str) -> None:
    worker = Embedded(rig.config())
    worker.run()
    try:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                own = Embedded(Config(QUICK, RedisOptions(redis_url)))
                own.run()
                own.stop()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        worker.stop()
