"""A stop that reaches the whole process group, also as process 1 of a container and below a shell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.fleet.conftest import Fleet, Fleets, children_of, is_there
from tests.support.processes import eventually

pytestmark = pytest.mark.crash

FLEET = f"{sys.executable} -m tests.fleet.program"
BELOW_A_SHELL = ("sh", "-c", f"{FLEET}; exit $?")
AS_PROCESS_ONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *FLEET.split())


def require_namespaces() -> None:
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("there is no unshare to make a process 1 with")
    done = subprocess.run([*AS_PROCESS_ONE[:5], "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no process namespace may be made here: {done.stderr.strip()}")


def start(stage: Fleets, wrapped: tuple[str, ...], **told: object) -> Fleet:
    """Start a fleet of two below another program, and find it."""
    if wrapped is AS_PROCESS_ONE:
        require_namespaces()
    fleet = stage.start(wrapped=wrapped, count=2, **told)
    if wrapped:
        [fleet.pid] = eventually(lambda: children_of(fleet.process.pid), 10, "the fleet below its starter")
    eventually(lambda: stage.redis.scard("processes") == 2, 20, lambda: f"two children\n{fleet.output}")
    return fleet


@pytest.mark.oracle("reports:P10")
@pytest.mark.parametrize("wrapped", [(), BELOW_A_SHELL, AS_PROCESS_ONE], ids=["alone", "shell", "process 1"])
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_group_told_to_stop_twice_drains_once_and_in_order(
    wrapped: tuple[str, ...], stop: signal.Signals, stage: Fleets
) -> None:
    fleet = start(stage, wrapped, options={"timeout": 15})
    jids = stage.hold(2)
    everybody = [fleet.pid, *fleet.children]

    os.killpg(fleet.process.pid, stop)
    time.sleep(0.7)
    os.killpg(fleet.process.pid, stop)
    time.sleep(0.3)
    assert all(map(is_there, everybody[:1])), "the second signal does not end the fleet before its jobs"
    stage.open_gate("go")

    eventually(lambda: not any(map(is_there, everybody)), 15, lambda: f"the end of all\n{fleet.output}")
    assert stage.ledger.jids("end") == set(jids)
    assert max(stage.ledger.starts().values()) == 1
    assert stage.redis.exists("queue:default", "processes") == 0
    if not wrapped:
        assert fleet.wait() == 0


@pytest.mark.oracle("reports:P10")
def test_process_one_leaves_no_zombies(stage: Fleets) -> None:
    quick = {"fleet.system.STRAY_PATIENCE_S": 0.3, "fleet.system.STRAY_LOOK_S": 0.1}
    fleet = start(stage, AS_PROCESS_ONE, constants=quick)
    jids = [stage.push("Orphans", 5) for _ in range(3)]
    stage.wait_until_done(jids)

    eventually(lambda: len(fleet.children) == 2, 10, "the end of the orphans")
    eventually(lambda: not children_of(fleet.pid, zombies=True), 10, "the burial of the orphans")

    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.oracle("reliability:SW8")
@pytest.mark.parametrize("wrapped", [(), AS_PROCESS_ONE], ids=["alone", "process 1"])
def test_what_the_host_has_started_itself_keeps_its_exit_code_for_the_host(
    wrapped: tuple[str, ...], stage: Fleets
) -> None:
    fleet = start(stage, wrapped, host_runs="exit 7")
    eventually(lambda: (stage.directory / "host-program-ended").exists(), 10, "the end of the host's program")
    os.kill(fleet.children[0], signal.SIGKILL)  # children of our own are reaped meanwhile
    eventually(lambda: stage.redis.scard("processes") == 2 and len(fleet.children) == 2, 10, lambda: fleet.output)

    fleet.send(signal.SIGTERM)

    assert fleet.wait() == 0
    assert "the host's program ended with 7" in fleet.output


@pytest.mark.oracle("reports:P05")
@pytest.mark.parametrize("count", [1, 2])
def test_a_deploy_lets_short_jobs_finish_and_gives_long_ones_back_before_the_exit(stage: Fleets, count: int) -> None:
    # given: a worker whose timeout fits into the grace of whoever stops it
    worker = stage.worker(flags=("-v", "1", "--processes", str(count)), concurrency=2, TIMEOUT=2)
    eventually(lambda: stage.redis.scard("processes") == count, 20, lambda: worker.output)
    waiting = stage.push("Work", 0, queue="other")
    short, long = stage.push("Work", 1000), stage.push("Work", 60_000)
    eventually(lambda: stage.ledger.jids("start") >= {short, long}, 10, "the start of both")
    # when
    started = time.monotonic()
    worker.send(signal.SIGTERM)
    # then
    assert worker.wait() == 0
    assert time.monotonic() - started < 2 + 5
    assert stage.ledger.jids("end") == {short}
    assert stage.where(long) == ["queue:default"]
    assert stage.where(waiting) == ["queue:other"]
    assert "a stop takes up to 7 s" in worker.output, "to be compared with the grace period"
