"""Dramatiq: one worker process, its own threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contestants.base import Command, PythonContestant, script


@dataclass(frozen=True)
class Dramatiq(PythonContestant):
    """A master that forks one worker process."""

    name: str = "Dramatiq"
    distribution: str = "dramatiq"
    app: str = "bench.apps.dramatiq_app"
    drain_jobs: int = 6_000

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """Its console script, on its default queue; it logs at INFO, a few lines at boot and none a job."""
        return Command([script("dramatiq"), self.app, "--processes", "1", "--threads", str(threads)])
