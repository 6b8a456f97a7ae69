"""RQ with its default worker, which forks for every job and runs one at a time; results are not kept."""

from __future__ import annotations

import os
from collections.abc import Iterable

from redis import Redis
from rq import Queue

from bench import workload

REDIS_URL = os.environ["BENCH_REDIS_URL"]  # read by `rq worker --config`


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send all rows in one pipeline."""
    queue = Queue("default", connection=Redis.from_url(REDIS_URL))
    function = workload.JOBS[job]
    queue.enqueue_many([Queue.prepare_data(function, args=row, result_ttl=0) for row in rows])
