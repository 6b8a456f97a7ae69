"""RQ: one process that forks for every job; it has no threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contestants.base import Command, PythonContestant, script


@dataclass(frozen=True)
class Rq(PythonContestant):
    """The default worker."""

    name: str = "RQ"
    distribution: str = "rq"
    app: str = "bench.apps.rq_app"
    drain_jobs: int = 200

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """`threads` is not asked of it."""
        return Command([script("rq"), "worker", "--config", "bench.apps.rq_app", "--quiet", *queues])
