"""Huey; it has no acknowledgement, so a job that a killed worker holds is lost."""

from __future__ import annotations

import os
from collections.abc import Iterable

from huey import RedisHuey

from bench import workload

huey = RedisHuey("bench", url=os.environ["BENCH_REDIS_URL"])

TASKS = {name: huey.task(name=name)(function) for name, function in workload.JOBS.items()}


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send one task a row."""
    task = TASKS[job]
    for number, text in rows:
        task(number, text)
