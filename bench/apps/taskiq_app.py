"""Taskiq with the stream broker, the one of its Redis brokers that acknowledges after the job."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from taskiq_redis import RedisStreamBroker

from bench import workload

broker = RedisStreamBroker(os.environ["BENCH_REDIS_URL"], consumer_id="0")

TASKS = {name: broker.task(task_name=name)(function) for name, function in workload.JOBS.items()}


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send one message a row."""
    asyncio.run(_push_many(job, rows))


async def _push_many(job: str, rows: Iterable[workload.Row]) -> None:
    await broker.startup()
    for number, text in rows:
        await TASKS[job].kiq(number, text)
    await broker.shutdown()
