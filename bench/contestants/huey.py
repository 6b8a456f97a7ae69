"""Huey: worker threads in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contestants.base import Command, PythonContestant, script


@dataclass(frozen=True)
class Huey(PythonContestant):
    """A consumer with threads."""

    name: str = "Huey"
    distribution: str = "huey"
    app: str = "bench.apps.huey_app"
    drain_jobs: int = 6_000

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """Its console script; `--quiet` logs from WARNING up."""
        consumer = script("huey_consumer")
        return Command([consumer, f"{self.app}.huey", "-w", str(threads), "-k", "thread", "--quiet"])
