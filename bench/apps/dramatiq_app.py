"""Dramatiq with its default middleware; it acknowledges after the job."""

from __future__ import annotations

import os
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench import workload

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS_URL"]))

ACTORS = {name: dramatiq.actor(actor_name=name)(function) for name, function in workload.JOBS.items()}


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send one message a row."""
    actor = ACTORS[job]
    for number, text in rows:
        actor.send(number, text)
