"""Worker processes from outside: what each said with its last heartbeat, and the signals that reach it.

Wire: docs/spec/core.md §8.5, §14. Processes of other versions and languages are among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .. import config as configuration
from ..config import Config
from ..errors import WurkError
from ..storage import leader, processes
from .records import time_of


class Process:
    """One process as it was when it was read."""

    def __init__(self, found: processes.Process, config: Config) -> None:
        self._found = found
        self._config = config

    def __repr__(self) -> str:
        return f"<Process {self.identity}>"

    def __getitem__(self, name: str) -> Any:
        """Any field that it said of itself; None when it did not."""
        return self._found.info.get(name)

    @property
    def identity(self) -> str:
        return self._found.identity

    @property
    def hostname(self) -> str:
        return _text(self["hostname"])

    @property
    def pid(self) -> int | None:
        pid = self["pid"]
        return pid if type(pid) is int else None

    @property
    def tag(self) -> str:
        return _text(self["tag"])

    @property
    def version(self) -> str:
        return _text(self["version"])

    @property
    def labels(self) -> list[str]:
        labels = self["labels"]
        return [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []

    @property
    def queues(self) -> list[str]:
        """The queues that it serves, each once."""
        return self._found.queues

    @property
    def weights(self) -> list[dict[str, int]]:
        """The queues of each capsule with their weights."""
        return self._found.weights

    @property
    def started_at(self) -> datetime | None:
        started_at = self["started_at"]
        return time_of(started_at) if type(started_at) in (int, float) else None

    @property
    def beat_at(self) -> datetime | None:
        """Its last heartbeat, by its own clock."""
        return time_of(self._found.beat)

    @property
    def concurrency(self) -> int:
        """Its threads."""
        return self._found.concurrency

    @property
    def busy(self) -> int:
        """Its running jobs."""
        return self._found.busy

    @property
    def rss_kb(self) -> int:
        """Its memory."""
        return self._found.rss_kb

    @property
    def rtt_us(self) -> int:
        """How long Redis took to answer it."""
        return self._found.rtt_us

    @property
    def is_embedded(self) -> bool:
        """Lives in another program, which decides when it stops."""
        return self._found.embedded

    @property
    def is_stopping(self) -> bool:
        """Takes no more jobs."""
        return self._found.quiet

    @property
    def is_leader(self) -> bool:
        """Does it lead at this moment?"""
        return leader.current(self._config.redis, self._config.options.leader_key) == self.identity

    def quiet(self) -> None:
        """Let it take no more jobs, from its next heartbeat on. Raises WurkError when it is embedded."""
        self._steer("TSTP")

    def stop(self) -> None:
        """Let it finish and end, from its next heartbeat on. Raises WurkError when it is embedded."""
        self._steer("TERM")

    def dump_threads(self) -> None:
        """Let it write to its log what each of its threads does, at its next heartbeat."""
        self._send("TTIN")

    def _steer(self, signal: str) -> None:
        if self.is_embedded:
            raise WurkError(f"{self.identity} lives in another program, which decides when it stops")
        self._send(signal)

    def _send(self, signal: str) -> None:
        processes.send_signal(self._config.redis, self.identity, signal)


class ProcessSet:
    """All worker processes. Reading never prunes; `cleanup` does."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or configuration.default()

    def __iter__(self) -> Iterator[Process]:
        """Every process with a heartbeat, by identity."""
        return (Process(found, self.config) for found in processes.all_processes(self.config.redis))

    def get(self, identity: str) -> Process | None:
        """One process; None when it is not known or has no heartbeat."""
        found = processes.find(self.config.redis, identity)
        return Process(found, self.config) if found else None

    __getitem__ = get

    @property
    def size(self) -> int:
        """Members of the set, those without a heartbeat included."""
        return processes.count(self.config.redis)

    @property
    def total_concurrency(self) -> int:
        return sum(process.concurrency for process in self)

    @property
    def total_rss_kb(self) -> int:
        return sum(process.rss_kb for process in self)

    @property
    def leader(self) -> str:
        """The identity of the leader; empty when nobody leads."""
        return leader.current(self.config.redis, self.config.options.leader_key)

    def cleanup(self) -> int:
        """Forget processes whose heartbeat has lapsed; returns how many. At most once a minute, fleet-wide."""
        return processes.prune(self.config.redis)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
