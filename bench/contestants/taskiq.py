"""Taskiq: one worker process, a thread pool for the jobs, which are plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contestants.base import Command, PythonContestant, script


@dataclass(frozen=True)
class Taskiq(PythonContestant):
    """A supervisor with one worker process."""

    name: str = "Taskiq"
    distribution: str = "taskiq"
    app: str = "bench.apps.taskiq_app"
    drain_jobs: int = 5_000

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """It acknowledges after the job by `--ack-type when_executed`."""
        size = ["--workers", "1", "--max-threadpool-threads", str(threads)]
        late = ["--ack-type", "when_executed", "--log-level", "WARNING"]
        return Command([script("taskiq"), "worker", f"{self.app}:broker", *size, *late])
