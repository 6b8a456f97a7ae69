"""Queues from outside: their jobs, and pausing them. `from wurk_django.api import Queue, queues`.

A paused queue still takes pushes, and its running jobs finish; no worker takes another job from it, Sidekiq's neither
where it reads the same set. Every worker knows within about two seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import config as configuration
from ..config import Config
from ..errors import InvalidJob
from ..storage import queues
from ..wire import is_queue_name
from .records import JobRecord

PAGE = 50  # jobs that an iteration reads at a time


class Queue:
    """One queue, which need not exist. Holds no state. Wire: docs/spec/core.md §3.1.

    Any name may be read and deleted from; only `pause` refuses what cannot be a queue name.
    """

    def __init__(self, name: str = configuration.DEFAULT_QUEUE, config: Config | None = None) -> None:
        self.name = name
        self.config = config or configuration.default()

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @classmethod
    def all(cls, config: Config | None = None) -> list[Queue]:
        """Every queue that was ever pushed to, by name."""
        config = config or configuration.default()
        return [cls(name, config) for name in queues.names(config.redis)]

    @property
    def size(self) -> int:
        return queues.size(self.config.redis, self.name)

    @property
    def latency(self) -> float:
        """Seconds that the next job has waited; 0.0 when there is none."""
        return queues.latency_s(self.config.redis, self.name)

    @property
    def is_paused(self) -> bool:
        return queues.is_paused(self.config.redis, self.name)

    def pause(self) -> bool:
        """Let nobody take jobs from it. True if it was not paused before."""
        return pause(self.name, self.config)

    def unpause(self) -> bool:
        """Let jobs be taken from it again. True if it was paused."""
        return unpause(self.name, self.config)

    def __iter__(self) -> Iterator[JobRecord]:
        """Every job, the newest first. While others are pushed, taken or deleted, one may be met twice, and while
        others are given back to the queue, one may be passed over."""
        before, seen = self.size, 0
        while True:
            # What is gone may have stood before this place: better a job twice than one not at all.
            first = max(seen - (before - self.size), 0)
            _, payloads = queues.page(self.config.redis, self.name, first, PAGE)
            if not payloads:
                return
            yield from map(self._record, payloads)
            seen += PAGE

    def page(self, number: int = 1, size: int = 25, *, oldest_first: bool = False) -> tuple[int, int, list[JobRecord]]:
        """One page for people: its number (from 1), how many jobs wait, and the page's."""
        number = max(number, 1)
        first = (number - 1) * size
        total, payloads = queues.page(self.config.redis, self.name, first, size, oldest_first=oldest_first)
        return number if total else 1, total, [self._record(payload) for payload in payloads]

    def find_job(self, jid: str) -> JobRecord | None:
        """The job of this jid; looks through the whole queue."""
        return next((job for job in self if job["jid"] == jid), None)

    def clear(self) -> bool:
        """Delete every job, and the name until the next push. A paused queue stays paused."""
        queues.clear(self.config.redis, self.name)
        return True

    def _record(self, payload: bytes) -> JobRecord:
        return JobRecord(payload, self.config, self.name)


def pause(name: str, config: Config | None = None) -> bool:
    """Let nobody take jobs from this queue, which need not exist yet. True if it was not paused before."""
    if not is_queue_name(name):
        raise InvalidJob(f"{name!r:.300} cannot be a queue name")
    return queues.pause((config or configuration.default()).redis, name)


def unpause(name: str, config: Config | None = None) -> bool:
    """Let jobs be taken from it again. True if it was paused."""
    return queues.unpause((config or configuration.default()).redis, name)


def is_paused(name: str, config: Config | None = None) -> bool:
    """Is this queue paused at this moment?"""
    return queues.is_paused((config or configuration.default()).redis, name)


def paused(config: Config | None = None) -> frozenset[str]:
    """The names of all paused queues."""
    return queues.paused((config or configuration.default()).redis)
