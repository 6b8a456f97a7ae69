"""The totals: what waits, what runs, what was done. Wire: docs/spec/core.md §8.2, §14."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from .. import config as configuration
from .. import keys
from ..config import DEFAULT_QUEUE, Config
from ..storage import processes, queues, sorted_sets, stats
from ..storage.queues import Summary

MAX_DAYS = 1825  # five years, as long as a day's counters are kept


class Stats:
    """The totals as they were when this was made; what costs more is asked for when it is read."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or configuration.default()
        self.fetch()

    def fetch(self) -> None:
        """Read the totals again."""
        redis = self.config.redis
        self.processed, self.failed = stats.totals(redis)
        sizes = sorted_sets.sizes(redis)
        self.scheduled_size = sizes[keys.SCHEDULE]
        self.retry_size = sizes[keys.RETRY]
        self.dead_size = sizes[keys.DEAD]
        self.processes_size = processes.count(redis)
        self.default_queue_latency = queues.latency_s(redis, DEFAULT_QUEUE)

    @property
    def enqueued(self) -> int:
        """Jobs that wait in all queues."""
        return sum(summary.size for summary in queues.summaries(self.config.redis, 0))

    @property
    def workers_size(self) -> int:
        """Jobs that run."""
        return sum(process.busy for process in processes.all_processes(self.config.redis))

    @property
    def queues(self) -> dict[str, int]:
        """How many jobs wait in each queue, the largest first."""
        return {summary.name: summary.size for summary in self._largest_first(0)}

    @property
    def queue_summaries(self) -> list[Summary]:
        """Name, size, latency and pause of each queue, the largest first."""
        return self._largest_first(None)

    def reset(self, *names: str) -> None:
        """Begin the totals `processed` and `failed` anew, or those of them that are named. The days stay."""
        chosen = names or ("processed", "failed")
        stats.reset(self.config.redis, processed="processed" in chosen, failed="failed" in chosen)
        self.fetch()

    def _largest_first(self, limit: int | None) -> list[Summary]:
        return sorted(queues.summaries(self.config.redis, limit), key=lambda summary: -summary.size)


class History:
    """Jobs processed and failed on each of the last days, UTC, the newest first: `{"2026-05-29": 12, …}`."""

    def __init__(self, days: int, start: date | None = None, config: Config | None = None) -> None:
        if not 1 <= days <= MAX_DAYS:
            raise ValueError(f"days must be from 1 to {MAX_DAYS}, got {days}")
        newest = start or datetime.now(UTC).date()
        dates = [(newest - timedelta(days=ago)).isoformat() for ago in range(days)]
        counts = stats.of_days((config or configuration.default()).redis, dates)
        self.processed = {day: processed for day, (processed, _) in zip(dates, counts, strict=True)}
        self.failed = {day: failed for day, (_, failed) in zip(dates, counts, strict=True)}
