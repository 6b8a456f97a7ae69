"""wurk-django: `manage.py wurk` in a Django project that has the admin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contestants.base import Command, PythonContestant

PROJECT = Path(__file__).with_name("wurk_project")


@dataclass(frozen=True)
class Wurk(PythonContestant):
    """One worker process."""

    name: str = "wurk-django"
    distribution: str = "wurk-django"
    app: str = "bench.contestants.wurk_project.client"
    drain_jobs: int = 100_000

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """Queues without weights are served in their order."""
        options = [option for queue in queues for option in ("-q", queue)]
        return manage("wurk", "-c", str(threads), *options)


def manage(*arguments: str) -> Command:
    """A command of the project."""
    return Command([sys.executable, "manage.py", *arguments], folder=PROJECT)
