"""The arena: one contestant at a time on an emptied Redis, with a stamp file to time it by."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench.contestants.base import ROOT, Command, Contestant
from bench.process import POLL_S, ContestantError, Process, run_to_end, running

PUSH_TIMEOUT_S = 60.0
WORK_TIMEOUT_S = 60.0
THREADS = 10
QUEUE = "default"


@dataclass(frozen=True)
class Stamp:
    """A line of the stamp file: a job's number, and the monotonic time at which it ran."""

    number: int
    at_ns: int


class Arena:
    """Made once a run; `clear` before each measurement."""

    def __init__(self, url: str, folder: Path) -> None:
        self.redis = redis.Redis.from_url(url)
        self.folder = folder
        self._url = url
        self._stamps = folder / "stamps"
        self._stride = 1
        self._spins = 1
        self._logs = 0

    def clear(self, stride: int = 1) -> None:
        """Empty Redis and the stamp file; from now on every `stride`-th number leaves a stamp."""
        self.redis.flushall()
        self._stamps.write_bytes(b"")
        self._stride = stride

    def calibrate(self) -> None:
        """Find out how much pure Python is a millisecond on this machine."""
        self._spins = round(self.bare("calibrate", 50))

    def push(self, contestant: Contestant, job: str, count: int, mode: str = "bulk") -> float:
        """Push jobs in a process of the contestant; returns the seconds that the pushes alone took."""
        command = contestant.push(job, count, mode)
        return float(self.run(command).split()[-1])

    def bare(self, kind: str, count: int) -> float:
        """What `bench.bare` prints, run by the interpreter that the Python contestants have."""
        return float(self.run(Command([sys.executable, "-m", "bench.bare", kind, str(count)])))

    def run(self, command: Command) -> str:
        """Run a command to its end and return its output."""
        return run_to_end(command, self._environment(), self._log(), PUSH_TIMEOUT_S)

    @contextmanager
    def worker(
        self, contestant: Contestant, threads: int = THREADS, queues: Sequence[str] = (QUEUE,)
    ) -> Iterator[Process]:
        """Start a worker, and end it on the way out."""
        with running(contestant.worker(threads, queues), self._environment(), self._log()) as process:
            yield process

    def stamps(self) -> list[Stamp]:
        """The stamps so far, in the order of writing."""
        lines = self._stamps.read_bytes().splitlines()
        return [Stamp(int(number), int(at)) for number, at in (line.split() for line in lines)]

    def wait_for_stamps(self, expected: int, *processes: Process, timeout_s: float = WORK_TIMEOUT_S) -> list[Stamp]:
        """Wait until that many stamps are there; raise when a worker ends or time is over."""
        deadline = time.monotonic() + timeout_s
        while self._stamps.read_bytes().count(b"\n") < expected:
            for process in processes:
                process.check_alive()
            if time.monotonic() > deadline:
                have = len(self.stamps())
                words = processes[0].last_words()
                raise ContestantError(f"{have} of {expected} stamps within {timeout_s:.0f} s: {words}")
            time.sleep(POLL_S)
        return self.stamps()

    def info(self, section: str) -> dict[str, Any]:
        """A section of the server's INFO."""
        answer: dict[str, Any] = self.redis.info(section)
        return answer

    def _log(self) -> Path:
        self._logs += 1
        return self.folder / f"{self._logs}.log"

    def _environment(self) -> dict[str, str]:
        # MALLOC settings, proxies and the like stay as the caller has them: they are the same for all.
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "BENCH_REDIS_URL": self._url,
            "BENCH_STAMPS": str(self._stamps),
            "BENCH_STRIDE": str(self._stride),
            "BENCH_SPINS": str(self._spins),
        }
