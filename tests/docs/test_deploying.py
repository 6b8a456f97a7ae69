"""What docs/reliability.md says about deploying, tried: its files are read, its commands run as hosts run them."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.processes import PythonProcess, eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reliability.md").read_text()
PROJECT = """
from wurk_django import job

@job
def wait(seconds):
    import time
    time.sleep(seconds)
"""
SETTINGS = """
SECRET_KEY = "deploying"
USE_TZ = True
INSTALLED_APPS = ["wurk_django", "yourapp"]
WURK = {{"REDIS": "{url}", "TIMEOUT": 10, "HEARTBEAT_INTERVAL": 0.2, "HEARTBEAT_TTL": 2}}
"""


def block(language: str) -> str:
    """The one code block of this language on the page."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def project(tmp_path: Path, redis_url: str) -> Path:
    """A project with one job that waits."""
    (tmp_path / "settings.py").write_text(SETTINGS.format(url=redis_url))
    (tmp_path / "yourapp").mkdir()
    (tmp_path / "yourapp" / "__init__.py").touch()
    (tmp_path / "yourapp" / "jobs.py").write_text(PROJECT)
    (tmp_path / "manage.py").write_text(
        "import os, sys\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\n"
        "from django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)\n"
    )
    return tmp_path


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("this machine has no systemd-analyze to ask")
    unit = tmp_path / "wurk.service"
    here = block("ini").replace("/srv/app/.venv/bin/python", sys.executable).replace("User=app", "User=daemon")
    unit.write_text(here.replace("WorkingDirectory=/srv/app", f"WorkingDirectory={tmp_path}"))

    asked = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=30, check=False)

    about_ours = [line for line in asked.stderr.splitlines() if "wurk.service" in line]
    assert about_ours == []


def test_the_grace_periods_are_longer_than_the_timeout() -> None:
    timeout_s = 25 + 5
    assert int(re.findall(r"TimeoutStopSec=(\d+)", block("ini"))[0]) > timeout_s
    assert int(re.findall(r"terminationGracePeriodSeconds: (\d+)", block("yaml"))[0]) > timeout_s
    assert int(re.findall(r"--time (\d+)", PAGE)[0]) > timeout_s


def test_a_procfile_host_ends_the_worker_in_order_and_a_running_job_finishes(
    project: Path, redis: redis_py.Redis
) -> None:
    [worker_line] = [line for line in block("procfile").splitlines() if line.startswith("worker:")]
    (project / "Procfile").write_text(worker_line.replace("python ", f"{sys.executable} ") + "\n")
    host = PythonProcess(["-m", "honcho", "start"], {}, project / "output")
    try:
        eventually(lambda: redis.scard("processes"), 15, lambda: host.output)
        push = "import django; django.setup(); from yourapp.jobs import wait; wait.perform_async(1)"
        subprocess.run(
            [sys.executable, "-c", push],
            cwd=project,
            env={"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{project}:{Path(__file__).parents[2]}"},
            check=True,
            timeout=30,
        )
        eventually(lambda: [key for key in redis.scan_iter("*:work") if redis.hlen(key)], 10, lambda: host.output)

        host.send(signal.SIGTERM)
        host.wait(20)
    finally:
        host.close()

    assert redis.get("stat:processed") == b"1", host.output
    assert redis.llen("queue:default") == 0
    assert "bye" in host.output
