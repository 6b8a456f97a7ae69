"""Processes of the benchmark: each in a session of its own, ended by that session's id, and looked at in /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.contestants.base import Command

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
POLL_S = 0.01


class ContestantError(Exception):
    """A contestant did not do what the measure needs; the message is the reason that the table shows."""


class Process:
    """A started command and its log. `running` makes it and ends it."""

    def __init__(self, command: Command, environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.begin_ns = time.monotonic_ns()
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                list(command.arguments),
                cwd=command.folder,
                env={**environment, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check_alive(self) -> None:
        """Raise when it has ended by itself."""
        code = self.popen.poll()
        if code is not None:
            raise ContestantError(f"ended with {code}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its log, where the reason of a failure usually stands."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-2:])[-300:] or "nothing in its log"

    def kill(self) -> None:
        """End it and its children at once: fine once nothing that they hold is wanted."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def family(self) -> list[int]:
        """The ids of the process and of all that descend from it."""
        return [self.popen.pid, *_descendants(self.popen.pid)]

    def pss_bytes(self) -> int:
        """Proportional set size of the whole family: shared pages count once."""
        return sum(_pss_bytes(pid) for pid in self.family())

    def cpu_s(self) -> float:
        """User and system time that the family has used so far."""
        return sum(_cpu_ticks(pid) for pid in self.family()) / TICKS_A_SECOND


@contextmanager
def running(command: Command, environment: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Start a command; kill it and its session on the way out, whatever happened inside."""
    process = Process(command, environment, log)
    try:
        yield process
    finally:
        process.kill()


def run_to_end(command: Command, environment: Mapping[str, str], log: Path, timeout_s: float) -> str:
    """Run a command and return what it printed; raise ContestantError when it fails or takes too long."""
    with running(command, environment, log) as process:
        # A timer, because a wait with a timeout notices the end up to 50 ms late, and the boot measure would see that.
        timer = threading.Timer(timeout_s, process.popen.kill)
        timer.start()
        code = process.popen.wait()
        timed_out = not timer.is_alive()
        timer.cancel()
        if timed_out:
            raise ContestantError(f"not done within {timeout_s:.0f} s: {process.last_words()}")
        if code != 0:
            raise ContestantError(f"ended with {code}: {process.last_words()}")
        return log.read_text(errors="replace")


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    direct = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [found for child in direct for found in (child, *_descendants(child))]


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ContestantError("the kernel tells no PSS")


def _cpu_ticks(pid: int) -> int:
    # The name, in brackets, may hold blanks; what follows the last bracket starts with field 3.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
