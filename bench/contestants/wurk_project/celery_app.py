"""Celery inside the same Django project, for the memory of an idle worker."""

from __future__ import annotations

import os
from collections.abc import Iterable

from celery import Celery

from bench import workload

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.contestants.wurk_project.settings")

app = Celery("bench", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True)
noop = app.task(workload.noop, name="noop")


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send one no-op a row."""
    for row in rows:
        noop.apply_async(row)
