"""Real worker processes: started, signalled, killed and waited for. The kernel ends them with the test process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import redis as redis_py

from wurk_django import tied_process

ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_s: float = 10.0, what: str | Callable[[], str] = "it") -> T:
    """The first truthy value of the condition."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()} did not come true in {timeout_s} s")
        time.sleep(0.005)
    return value


class PythonProcess:
    """`python <arguments>` with the checkout on its path; what it prints goes to `output`. Ended by `close`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        inherited = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "NOTIFY_SOCKET")}
        self.started_at = time.monotonic()
        with output.open("wb") as stream:
            self._process = tied_process.spawn(
                [sys.executable, *arguments],
                signum=signal.SIGKILL,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=output.parent,
                env={**inherited, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code (minus the signal that ended it), None while it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def send(self, signum: int) -> None:
        self._process.send_signal(signum)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def wait(self, timeout_s: float = 15.0) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process {self.pid} still runs after {timeout_s} s:\n{self.output}") from None

    def close(self) -> None:
        self.kill()


class WorkerProcess(PythonProcess):
    """`python -m django wurk` of a project."""

    def __init__(
        self,
        environment: Mapping[str, str],
        output: Path,
        *,
        concurrency: int = 5,
        queues: Sequence[str] = ("default",),
        flags: Sequence[str] = (),
    ) -> None:
        chosen = [part for name in queues for part in ("-q", name)]
        arguments = ["-m", "django", "wurk", "-v", "0", "-c", str(concurrency), *chosen, *flags]
        super().__init__(arguments, environment, output)

    def identity(self, redis: redis_py.Redis) -> str | None:
        """Its name in the process set; None before its first beat, and once its heartbeat has lapsed."""
        for member in redis.smembers("processes"):
            if member.decode().split(":")[-2] == str(self.pid) and redis.hexists(member, "info"):
                return member.decode()
        return None

    def wait_until_ready(self, redis: redis_py.Redis, timeout_s: float = 15.0) -> str:
        """Wait for its first beat; returns its identity."""

        def look() -> str | None:
            assert self.code is None, f"the worker ended with {self.code}:\n{self.output}"
            return self.identity(redis)

        return eventually(look, timeout_s, lambda: f"the first beat of {self.pid}:\n{self.output}")
