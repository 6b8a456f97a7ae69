"""What runs at this moment, as processes said with their last heartbeats: up to one heartbeat old.

Wire: hash `<identity>:work`, docs/spec/core.md §8.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .. import config as configuration
from .. import wire
from ..config import Config
from ..errors import MalformedPayload
from ..storage import processes
from .records import JobRecord, time_of


class Work:
    """One running job: where, since when, and the job itself."""

    def __init__(self, process_id: str, thread_id: str, row: dict[str, Any], config: Config) -> None:
        self.process_id = process_id
        self.thread_id = thread_id
        queue = row.get("queue")
        self.queue: str | None = queue if isinstance(queue, str) else None
        self.run_at_s = wire.read_time(row.get("run_at")) or 0.0
        self.payload = _payload(row.get("payload"))
        self.job = JobRecord(self.payload, config)

    def __repr__(self) -> str:
        return f"<Work {self.job.display_class} {self.job.jid} in {self.process_id}>"

    @property
    def run_at(self) -> datetime | None:
        return time_of(self.run_at_s)


class WorkSet:
    """All running jobs, the one that has run longest first."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or configuration.default()

    def __iter__(self) -> Iterator[Work]:
        works = [
            Work(identity, thread, row, self.config)
            for identity, thread, raw in processes.running(self.config.redis)
            if (row := _row(raw)) is not None
        ]
        return iter(sorted(works, key=lambda work: work.run_at_s))

    @property
    def size(self) -> int:
        """How many jobs the processes say they run."""
        return sum(process.busy for process in processes.all_processes(self.config.redis))

    def find_work(self, jid: str) -> Work | None:
        """Where the job of this jid runs."""
        return next((work for work in self if work.job["jid"] == jid), None)


def _row(raw: bytes) -> dict[str, Any] | None:
    try:
        row = wire.decode(raw)
    except MalformedPayload:
        return None
    return row if isinstance(row, dict) else None


def _payload(value: object) -> bytes:
    """The job's bytes: a text inside the row, an object in the rows of older versions."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    return wire.encode_again(value) if isinstance(value, dict) else b""
