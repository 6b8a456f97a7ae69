"""Clocks that jump, processes that stand still, and limits that are reached."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Stage, beat, is_claim
from tests.support.processes import WorkerProcess, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
DAY_S = 86_400

pytestmark = pytest.mark.crash

needs_faketime = pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime")


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A file that says how far the wall clock of a process is off, such as "+1d"; the monotonic clock is left alone."""
    path = tmp_path / "clock"
    path.write_text("+0")
    return path


def faked(clock: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@pytest.fixture
def moody(redis_server: RedisServer, clock: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage whose server takes its time from `clock`."""
    with (
        RedisServer(environment=faked(clock)) as server,
        Proxy(server.port) as proxy,
        server.client() as client,
    ):
        stage = Stage(client, proxy, tmp_path)
        yield stage
        stage.close()


# --- Standing still ---------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:C1", "safety:G7", "reliability:A14")
def test_a_worker_that_stood_still_beats_before_it_claims_and_books_nothing_of_others(
    stage: Stage, redis_server: RedisServer
) -> None:
    frozen = stage.worker(concurrency=2)
    frozen.wait_until_ready(stage.redis)
    jids = [stage.push("Hold", "gate"), stage.push("FailAt", "gate")]
    eventually(lambda: stage.ledger.jids("start") == set(jids))
    frozen.send(signal.SIGSTOP)
    other = stage.worker(concurrency=2, url=redis_server.url)
    eventually(lambda: len(stage.ledger.entries("start", pid=other.pid)) == 2, 20, "the other to take over")
    stage.open_gate("gate")
    eventually(lambda: set(jids) == stage.ledger.jids("end"), 10)
    other.send(signal.SIGTERM)
    assert other.wait() == 0

    stage.proxy.clear()
    last = stage.push_many("Work", [[1]] * 20)
    frozen.send(signal.SIGCONT)

    stage.wait_until_done([*jids, *last])
    commands = [command for command in list(stage.proxy.commands) if beat(command) or is_claim(command)]
    assert beat(commands[0])
    eventually(lambda: len(stage.ledger.entries("fail", pid=frozen.pid)) == 1)
    time.sleep(0.3)  # more than a booking takes
    assert not stage.redis.zcard("retry"), "the failure of a job that others have run is not booked"
    starts = stage.ledger.starts()
    assert [starts[jid, "None"] for jid in jids] == [2, 2]
    assert all(starts[jid, "None"] == 1 for jid in last)
    frozen.send(signal.SIGTERM)
    assert frozen.wait() == 0
    stage.check_keys()


# --- Clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:C4", "safety:G10")
@pytest.mark.parametrize("off_s", [DAY_S, -DAY_S, 90, -90])
def test_a_worker_with_a_wrong_clock_runs_nothing_early_and_reaps_nobody(
    off_s: float, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = stage.worker(concurrency=1)
    right.wait_until_ready(stage.redis)
    running = stage.push("Hold", "gate")
    eventually(lambda: running in stage.ledger.jids("start"))
    monkeypatch.setenv("CRASH_CLOCK_S", str(off_s))
    wrong = stage.worker(concurrency=2)
    wrong.wait_until_ready(stage.redis)

    due_ns = time.monotonic_ns() + 2_500_000_000
    later = stage.push("Work", at=time.time() + 2.5)
    flaky = stage.push("Flaky")

    eventually(lambda: later in stage.ledger.jids("end"), 6, "the scheduled job")
    [start] = stage.ledger.entries("start", jid=later)
    assert start.at_ns >= due_ns - 20_000_000, "early"
    assert start.at_ns <= due_ns + 1_500_000_000, "late"
    stage.open_gate("gate")
    stage.wait_until_done([running, later, flaky])
    assert set(stage.ledger.starts().values()) == {1}
    assert (right.code, wrong.code) == (None, None)


@needs_faketime
@pytest.mark.oracle("safety:C6")
def test_a_server_whose_clock_falls_back_a_day_runs_new_jobs_and_repeats_none(moody: Stage, clock: Path) -> None:
    worker = moody.worker(concurrency=2)
    worker.wait_until_ready(moody.redis)
    running = moody.push("Hold", "gate")
    eventually(lambda: running in moody.ledger.jids("start"))

    clock.write_text("-1d")
    eventually(lambda: moody.redis.time()[0] < time.time() - DAY_S / 2)
    jids = moody.push_many("Work", [[1]] * 20)
    late = moody.push("Work", at=time.time() + 0.2)

    eventually(lambda: moody.ledger.jids("end") >= set(jids), 5, "the new jobs")
    time.sleep(1)
    assert moody.where(late) == ["schedule"], "by the clock of the server its time comes in a day"
    moody.open_gate("gate")
    clock.write_text("+0")
    moody.wait_until_done([running, late, *jids])
    assert set(moody.ledger.starts().values()) == {1}
    assert worker.code is None


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:C16")
def test_a_worker_without_descriptors_waits_and_goes_on_when_there_are_some(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, HEARTBEAT_TTL=60)
    worker.wait_until_ready(stage.redis)
    _, hard = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, hard))
    stage.proxy.reset_all()
    jids = stage.push_many("Work", [[1]] * 20)
    time.sleep(1.5)
    assert worker.code is None
    assert not stage.ledger.jids("start")

    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (hard, hard))

    stage.wait_until_done(jids, 5)
    assert set(stage.ledger.starts().values()) == {1}
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.oracle("safety:C16")
def test_a_worker_without_descriptors_ends_cleanly_when_it_is_told(stage: Stage) -> None:
    worker = stage.worker(concurrency=2, HEARTBEAT_TTL=60)
    worker.wait_until_ready(stage.redis)
    _, hard = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, hard))
    stage.proxy.reset_all()
    jid = stage.push("Work")
    time.sleep(0.5)

    worker.send(signal.SIGTERM)

    assert worker.wait(30) == 0
    assert stage.where(jid) == ["queue:default"]


@pytest.mark.oracle("safety:C14")
def test_a_worker_whose_log_goes_to_a_full_disk_works_on(stage: Stage) -> None:
    worker = WorkerProcess(stage.environment(), Path("/dev/full"), concurrency=2, flags=["-v", "1"])
    try:
        jids = [*stage.push_many("Work", [[1]] * 50), stage.push("Flaky"), stage.push("Doomed", retry=0)]
        stage.wait_until_done(jids, 20)
        assert set(stage.ledger.starts().values()) == {1}
        worker.send(signal.SIGTERM)
        assert worker.wait() in (0, 120), "120: Python could not flush its own output at the end"
    finally:
        worker.close()
