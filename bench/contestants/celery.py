"""Celery: threads pool; alone for the drain, and inside the Django project for the memory of an idle worker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.contestants.base import Command, PythonContestant


@dataclass(frozen=True)
class Celery(PythonContestant):
    """One process, a pool of threads."""

    name: str = "Celery"
    distribution: str = "celery"
    app: str = "bench.apps.celery_app"
    drain_jobs: int = 2_000

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """Celery's default queue is named `celery`; eight queues are never asked of it."""
        pool = ["--pool", "threads", "--concurrency", str(threads), "--loglevel", "WARNING"]
        return Command([sys.executable, "-m", "celery", "-A", self.app, "worker", *pool])


@dataclass(frozen=True)
class CeleryDjango(Celery):
    """The same worker with the benchmark's Django project loaded, without wurk-django in it."""

    name: str = "Celery with Django"
    app: str = field(default="bench.contestants.wurk_project.celery_app")

    def worker(self, threads: int, queues: Sequence[str]) -> Command:
        """The project's app, under its settings."""
        plain = super().worker(threads, queues)
        settings = "bench.contestants.wurk_project.settings"
        return Command(plain.arguments, environment={"BENCH_ENGINE": "celery", "DJANGO_SETTINGS_MODULE": settings})

    def push(self, job: str, count: int, mode: str) -> Command:
        """From a process without wurk-django too."""
        return Command(super().push(job, count, mode).arguments, environment={"BENCH_ENGINE": "celery"})
