"""`manage.py wurk --demo` in a fresh clone: it works, its counts are true, it ends what it started."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.example.conftest import Clone

pytestmark = pytest.mark.xdist_group("demo")

DEADLINE_S = 90.0
TABLE = re.compile(r"^(done|retried|scheduled|dead) +(\d+) +(\d+)", re.MULTILINE)


def table(output: str) -> dict[str, tuple[int, int]]:
    """Expected and counted, by name."""
    return {name: (int(expected), int(counted)) for name, expected, counted in TABLE.findall(output)}


def processes_in(path: Path) -> list[str]:
    """Commands of the processes whose directory is in this clone."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(path):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # ended, or not ours to ask
            continue
    return found


def wait_until_nothing_runs_in(path: Path) -> None:
    deadline = time.monotonic() + 10
    while found := processes_in(path):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def read_until(terminal: int, text: str) -> str:
    """What a terminal shows until this text comes, or the program ends."""
    shown, deadline = "", time.monotonic() + DEADLINE_S
    while text not in shown:
        assert time.monotonic() < deadline, shown
        try:
            shown += os.read(terminal, 4096).decode("utf-8", "replace")
        except OSError:
            break
    return shown


@pytest.mark.skipif(sys.platform != "linux", reason="looks for leftover processes in /proc")
def test_the_demo_keeps_the_shop_open_and_a_second_run_counts_its_own_jobs_only(tmp_path: Path) -> None:
    clone = Clone(tmp_path.resolve() / "clone")
    # given: a first run, on a terminal, that goes on until Ctrl-C
    terminal, inner = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "manage.py", "wurk", "--demo"], cwd=clone.path, env=clone.env,
        stdin=inner, stdout=inner, stderr=inner,
    )  # fmt: skip
    os.close(inner)
    try:
        shown = read_until(terminal, "Ctrl-C closes it")
        found = re.search(r"open at (http://\S+)", shown)
        assert found is not None, shown
        with urllib.request.urlopen(found[1], timeout=10) as page:
            assert b"Teapot" in page.read()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(terminal)
    assert "\r" in re.sub(r"\r\n", "", shown)  # one line that changes
    first = table(shown.replace("\r\n", "\n"))
    wait_until_nothing_runs_in(clone.path)
    # when: a second one, which ends by itself and writes into a pipe
    started = time.monotonic()
    once = subprocess.Popen(
        [sys.executable, "-u", "manage.py", "wurk", "--demo", "--once"], cwd=clone.path, env=clone.env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert once.stdout is not None
    line = once.stdout.readline()
    took_s = time.monotonic() - started
    output = line + once.communicate(timeout=DEADLINE_S)[0]
    # then
    assert once.returncode == 0, output
    assert took_s < 5
    assert "\r" not in output
    assert table(output) == first
    assert set(first) == {"done", "retried", "scheduled", "dead"}
    assert all(expected == counted > 0 for expected, counted in first.values())
    wait_until_nothing_runs_in(clone.path)


def test_counts_that_differ_from_the_workload_end_with_one(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    workload = clone.path / "example_project" / "workload.py"
    text = workload.read_text().replace("[payments.BUSY_AT_FIRST] * 2", "[payments.BUSY_AT_FIRST] * 0")
    workload.write_text(text.replace("dead=declined + 1", "dead=declined + 2"))
    done = clone.python("manage.py", "wurk", "--demo", "--once")
    assert done.returncode == 1
    assert table(done.stdout)["dead"] == (3, 2)
    assert "differs" in done.stdout
    assert "worker.log" in done.stderr


def test_a_worker_that_cannot_start_ends_the_demo_with_one(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    settings = clone.path / "example_project" / "settings.py"
    settings.write_text(settings.read_text() + '\nimport sys\nif sys.argv[1:] == ["wurk"]: WURK["CONCURRENCY"] = 0\n')
    done = clone.python("manage.py", "wurk", "--demo", "--once")
    assert done.returncode == 1
    assert table(done.stdout)["done"][1] == 0
    assert "CONCURRENCY" in (clone.path / "example_project" / "var" / "worker.log").read_text()
