"""A worker as a whole: what starts and ends in which order, and what remains when a start fails."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.worker.rig import Recorder, Rig, blocked, enqueue, numbered, payload, private, queued, threads, wait_for
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError, InvalidHook
from wurk_django.worker import identity
from wurk_django.worker.control import Shutdown


def watched(config: Config, events: list[str]) -> None:
    """Two handlers for every event, numbered by registration; beats are told once."""
    for event in ("startup", "heartbeat", "beat", "quiet", "shutdown", "exit"):
        for number in (1, 2):

            def note(text: str = f"{event} {number}") -> None:
                if not text.startswith("beat") or text not in events:
                    events.append(text)

            config.hooks.on(event, note)


@pytest.mark.oracle("core:D18")
def test_the_events_of_a_life_with_one_slow_job_come_in_sidekiqs_order(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    events: list[str] = []

    def slow(*_: Any) -> None:
        try:
            while True:
                time.sleep(0.005)
        except Shutdown:
            events.append("shutdown in the job")
            raise

    jobs.job(act=slow)
    config = rig.config(timeout=0.3)
    watched(config, events)
    launcher = rig.launcher(config)
    enqueue(redis, "default", payload())
    wait_for(lambda: jobs.calls and "beat 2" in events)

    launcher.stop()

    assert events == [
        "startup 1", "startup 2", "heartbeat 1", "heartbeat 2", "beat 1", "beat 2", "quiet 2", "quiet 1",
        "shutdown 2", "shutdown 1", "shutdown in the job", "exit 2", "exit 1",
    ]  # fmt: skip
    assert redis.exists("processes", identity.identity(), f"{identity.identity()}:work") == 0
    time.sleep(0.3)
    assert redis.exists("processes", identity.identity()) == 0, "no late beat brings it back"


@pytest.mark.oracle("core:L4")
def test_quiet_twice_runs_its_handlers_once_and_the_running_job_goes_on(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    events: list[str] = []
    gate = jobs.gated_job("slow")
    config = rig.config()
    config.hooks.on("quiet", lambda: events.append("quiet"))
    launcher = rig.launcher(config)
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: jobs.calls)

    launcher.quiet()
    launcher.quiet()
    left = payload()
    enqueue(redis, "default", left)

    assert events == ["quiet"]
    assert launcher.quieted
    wait_for(lambda: redis.hget(identity.identity(), "quiet") == b"true")
    gate.set()
    wait_for(lambda: private(redis) == [], what="the ack of the job that ended while quiet")
    assert queued(redis) == [left]


def test_stopping_twice_is_harmless(rig: Rig) -> None:
    launcher = rig.launcher()
    launcher.stop()

    launcher.stop()

    assert rig.errors == []


def test_an_error_of_a_startup_handler_aborts_the_boot(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config()
    config.hooks.on("startup", lambda: 1 / 0)
    launcher = rig.launcher(config, start=False)

    with pytest.raises(ZeroDivisionError):
        launcher.start()

    assert threads() == []
    assert redis.exists("processes") == 0
    assert rig.messages() == ["startup handler: division by zero"]


@pytest.mark.parametrize("event", ["quiet", "shutdown", "exit", "heartbeat", "beat"])
def test_an_error_of_any_other_handler_is_told_and_the_rest_run(event: str, rig: Rig) -> None:
    called: list[int] = []
    config = rig.config()
    config.hooks.on(event, lambda: called.append(1))
    config.hooks.on(event, lambda: 1 / 0)
    config.hooks.on(event, lambda: called.append(2))
    launcher = rig.launcher(config)
    if event in ("heartbeat", "beat"):
        wait_for(lambda: len(called) >= 2)

    launcher.stop()

    assert set(called) == {1, 2}
    assert f"{event} handler: division by zero" in rig.messages()


def test_unknown_events_and_handlers_that_cannot_be_called_are_refused(rig: Rig) -> None:
    hooks = rig.config().hooks
    with pytest.raises(InvalidHook, match="started"):
        hooks.on("started", lambda: None)
    with pytest.raises(InvalidHook, match="callable"):
        hooks.on("quiet", "text")  # type: ignore[arg-type]


class Part:
    """A component that notes what is done with it."""

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails

    def start(self) -> None:
        self._note("start")

    def quiet(self) -> None:
        self._note("quiet")

    def stop(self) -> None:
        self._note("stop")

    def _note(self, act: str) -> None:
        self.log.append(f"{act} {self.name}")
        if self.fails == act:
            raise OSError(f"{act} of {self.name} failed")


@pytest.mark.oracle("reliability:SW11")
@pytest.mark.parametrize("rollback_fails", [False, True])
def test_a_start_that_fails_at_the_last_component_leaves_nothing_running(
    rollback_fails: bool, redis: redis_py.Redis, rig: Rig
) -> None:
    log: list[str] = []
    config = rig.config()
    parts = (Part("a", log, "stop" if rollback_fails else ""), Part("b", log, "start"))
    config.component_makers.append(lambda _running: parts)
    launcher = rig.launcher(config, start=False)

    with pytest.raises(OSError, match="start of b failed"):
        launcher.start()

    assert log == ["start a", "start b", "stop b", "stop a"]
    wait_for(lambda: threads() == [])
    assert redis.exists("processes", identity.identity()) == 0
    told = [message for message in rig.messages() if "rolling back" in message]
    assert told == (["rolling back a failed start: stop of a failed"] if rollback_fails else [])
    wait_for(lambda: redis.info("clients")["connected_clients"] == 1)
    parts[0].fails = ""  # it is stopped once more with the test


@pytest.mark.oracle("reliability:SW11", "safety:C16")
@pytest.mark.parametrize("name", ["wurk-heartbeat", "wurk-scheduler", "wurk-reaper", "wurk-default-tender",
                                  "wurk-default-1", "wurk-default-3", "wurk-second-2"])  # fmt: skip
def test_a_start_without_threads_to_be_had_leaves_nothing_running_and_no_job_claimed(
    name: str, redis: redis_py.Redis, rig: Rig, jobs: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.job()
    waiting = numbered(3)
    enqueue(redis, "first", *waiting)
    config = rig.config(["first"], 3)
    config.capsule("second", ["other"], 2)
    launcher = rig.launcher(config, start=False)
    really = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        really(thread)

    monkeypatch.setattr(threading.Thread, "start", start)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        launcher.start()

    monkeypatch.undo()
    wait_for(lambda: threads() == [])
    assert redis.exists("processes", identity.identity()) == 0
    assert private(redis, "first") == []
    assert len(queued(redis, "first")) + len(jobs.calls) == 3


def test_components_start_after_the_heartbeat_and_end_before_it(rig: Rig, redis: redis_py.Redis) -> None:
    log: list[str] = []
    config = rig.config()
    config.component_makers.append(lambda running: (Part(running.identity, log),))
    launcher = rig.launcher(config)
    launcher.quiet()
    launcher.stop()

    me = identity.identity()
    assert log == [f"start {me}", f"quiet {me}", f"stop {me}"]


def test_capsules_of_a_process_work_side_by_side_also_on_the_same_queue(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    config = rig.config(["a", "shared"], 2)
    config.capsule("other", ["b", "shared"], 2)
    launcher = rig.launcher(config)
    for queue in ("a", "b", "shared"):
        enqueue(redis, queue, *numbered(50))

    wait_for(lambda: len(jobs.calls) == 150)
    wait_for(lambda: launcher.idle)

    assert all(private(redis, queue, capsule) == [] for queue in ("a", "b", "shared") for capsule in (0, 1))


def test_a_frozen_configuration_takes_no_more_settings(rig: Rig) -> None:
    config = rig.config()
    rig.launcher(config)

    with pytest.raises(ConfigurationError):
        config.backtrace_cleaner = lambda lines: lines
    with pytest.raises(ConfigurationError):
        config.capsule("late", ["x"], 1)


@pytest.mark.oracle("reliability:SW9")
def test_a_frozen_capsule_gets_new_connections_after_its_pools_were_reset(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config()
    config.freeze()
    capsule = config.capsules["default"]
    before = capsule.redis
    assert before.execute("PING") == b"PONG"

    config.reset_redis_pools()

    assert capsule.redis is not before
    assert capsule.redis.execute("PING") == b"PONG"
    assert config.redis.execute("PING") == b"PONG"


def test_a_stopped_worker_holds_no_connection(redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder) -> None:
    jobs.job()
    launcher = rig.launcher(rig.config(["a", "b", "c"], url=proxy.url))
    enqueue(redis, "a", payload())
    wait_for(lambda: jobs.calls)
    wait_for(lambda: blocked(redis) == 3)

    launcher.stop()

    wait_for(lambda: not proxy.lines())


def test_the_same_host_can_start_a_second_worker_after_the_first(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    for number in range(2):
        launcher = rig.launcher()
        enqueue(redis, "default", payload("work", number))
        wait_for(lambda number=number: len(jobs.calls) == number + 1)
        launcher.stop()

    assert jobs.calls == [(0,), (1,)]


def test_a_stop_during_an_outage_ends_in_time(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, jobs: Recorder, one_attempt: None
) -> None:
    jobs.gated_job("slow")
    launcher = rig.launcher(rig.config(url=proxy.url, timeout=0.2))
    raw = payload("slow")
    enqueue(redis, "default", raw)
    wait_for(lambda: jobs.calls)
    proxy.refuse = True
    proxy.reset_all()

    started = time.monotonic()
    launcher.stop()

    assert time.monotonic() - started < 8
    assert private(redis) == [raw], "for the reaper"
    proxy.refuse = False
