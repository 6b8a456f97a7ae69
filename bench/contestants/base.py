"""What the measures ask of a contestant: the commands that load its queue and start its worker, nothing more.

The processes themselves, their environment and their end belong to `bench/arena.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Command:
    """A process to start: in the repository's root unless `folder` says otherwise."""

    arguments: Sequence[str]
    folder: Path = ROOT
    environment: Mapping[str, str] = field(default_factory=dict)


class Contestant(Protocol):
    """One job system. Its pushes print the seconds that they took; its jobs leave the stamps of `bench/workload.py`."""

    @property
    def name(self) -> str:
        """As the table shows it, without the version."""

    @property
    def drain_jobs(self) -> int:
        """How many no-op jobs keep it busy for some three seconds."""

    def version(self) -> str:
        """The version that runs; raises when it is not installed."""

    def push(self, job: str, count: int, mode: str) -> Command:
        """Push `count` jobs to the queue `default`, in a mode of `bench/push.py`."""

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """One process with that many threads, unless the contestant cannot; logging from WARNING up."""


@dataclass(frozen=True)
class PythonContestant:
    """What the Python peers share: `bench.push` with the app module of each, and a version to look up."""

    name: str
    distribution: str
    app: str
    drain_jobs: int

    def version(self) -> str:
        """The installed distribution's."""
        return version(self.distribution)

    def push(self, job: str, count: int, mode: str) -> Command:
        """By `bench.push` with the app module."""
        return Command([sys.executable, "-m", "bench.push", self.app, job, str(count), mode])


def script(name: str) -> str:
    """The console script of that name beside this interpreter."""
    return str(Path(sys.executable).with_name(name))
