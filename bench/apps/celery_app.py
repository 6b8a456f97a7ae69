"""Celery: a thread pool, and late acknowledgement, which is its reliable fetch."""

from __future__ import annotations

import os
from collections.abc import Iterable

from celery import Celery

from bench import workload

app = Celery("bench", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(task_acks_late=True, task_ignore_result=True)

TASKS = {name: app.task(function, name=name) for name, function in workload.JOBS.items()}


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send one task a row."""
    task = TASKS[job]
    for row in rows:
        task.apply_async(row)
