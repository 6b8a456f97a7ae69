"""Whose the health port is, and the probe of a container that asks there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.processes import PythonProcess, eventually
from tests.worker.probing import HOST, can_bind, free_port, get, port_of, probed
from tests.worker.rig import Recorder, Rig, enqueue, payload, wait_for
from wurk_django.worker import health

# --- a port that is taken ---------------------------------------------------------------------------------------------


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "BIND_RETRY_S", 0.1)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.oracle("extras:RG-19")
def test_a_port_taken_by_another_program_is_one_warning_and_is_taken_when_it_is_free(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.job()
    with socket.create_server((HOST, 0)) as foreign:
        port = foreign.getsockname()[1]
        launcher = rig.launcher(health_check=f"{HOST}:{port}")
        enqueue(redis, "default", payload())
        wait_for(lambda: jobs.calls, what="a job of a worker without its health port")
        time.sleep(0.4)
        assert [record.levelname for record in caplog.records if "health checks" in record.message] == ["WARNING"]
        assert launcher.health.port is None

    assert port_of(launcher) == port
    assert get(port, "/live").status == 200


SIBLING = """
import sys, time
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker import health, process
health.BIND_RETRY_S = 0.5
config = Config(Options(health_check=sys.argv[2], heartbeat_interval=0.2), RedisOptions(sys.argv[1]))
config.fleet_size = 2
config.capsule("default", ["default"], 1)
process.run(config, on_ready=lambda launcher: print("ready", flush=True))
"""


@pytest.mark.oracle("reliability:HP3")
def test_when_the_sibling_that_has_the_port_is_killed_another_answers(redis_url: str, tmp_path: Path) -> None:
    program = tmp_path / "sibling.py"
    program.write_text(SIBLING)
    port = free_port()
    siblings: list[PythonProcess] = []
    try:
        for name in ("first", "second"):
            siblings.append(PythonProcess([str(program), redis_url, f"{HOST}:{port}"], {}, tmp_path / name))
            eventually(lambda: "ready" in siblings[-1].output, 15, lambda: siblings[-1].output)
            eventually(lambda: answers(port))
        siblings[0].kill()
        killed_at = time.monotonic()
        eventually(lambda: answers(port), 5, "the second sibling's answer")
        assert time.monotonic() - killed_at < 2.5, "one retry of half a second, and slack"
        siblings[1].send(signal.SIGTERM)
        assert siblings[1].wait() == 0
    finally:
        for each in siblings:
            each.close()


def answers(port: int) -> bool:
    try:
        return get(port, "/live").status == 200
    except (OSError, AssertionError):
        return False


def test_a_process_that_a_job_forks_does_not_keep_the_port(rig: Rig) -> None:
    launcher, port = probed(rig)
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    try:
        launcher.stop()
        wait_for(lambda: can_bind(port), 10, "a free port")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# --- the probe that loads nothing -------------------------------------------------------------------------------------


def run_probe(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wurk_django.health", *arguments],
        capture_output=True, text=True, timeout=20, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip


@pytest.mark.oracle("reports:P12")
def test_the_probe_of_a_container_says_by_its_exit_code_how_the_worker_is(rig: Rig) -> None:
    launcher, port = probed(rig)

    done = run_probe("--port", str(port))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"check": "live"' in done.stdout
    assert run_probe("--ready", f"--port={port}", "--host", HOST).returncode == 0

    launcher.quiet()
    done = run_probe("--live", "--port", str(port))
    assert done.returncode == 1
    assert '"reason": "stopping"' in done.stdout

    launcher.stop()
    done = run_probe("--port", str(port))
    assert done.returncode == 1
    assert done.stdout.startswith(f"nobody answers on {HOST} port {port}")


@pytest.mark.parametrize(
    "arguments", [["--port"], ["--port", "x"], ["--port", "0"], ["live"], ["--live=1"], ["--host"]]
)
def test_wrong_arguments_of_the_probe_are_a_two(arguments: list[str]) -> None:
    done = run_probe(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")


@pytest.mark.oracle("reports:P12")
def test_the_probe_imports_neither_django_nor_redis() -> None:
    heavy = ("django", "redis", "argparse", "http")
    code = f"import sys, wurk_django.health; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"
