"""The counters of jobs processed and failed. Wire: `stat:processed`, `stat:failed` and one of each a UTC day."""

from __future__ import annotations

from datetime import UTC, datetime

from .. import keys
from ..connection import Redis
from ..errors import RedisRefused

DAY_TTL_S = 157_680_000  # five years


def add(redis: Redis, processed: int, failed: int) -> None:
    """Add to the lifetime and day totals. Not repeated on a lost answer; raises when Redis refused it."""
    if not processed and not failed:
        return
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    commands: list[tuple[str | int, ...]] = []
    for stat, amount in ((keys.STAT_PROCESSED, processed), (keys.STAT_FAILED, failed)):
        day = keys.per_day(stat, today)
        commands += [("INCRBY", stat, amount), ("INCRBY", day, amount), ("EXPIRE", day, DAY_TTL_S)]
    refused = [reply for reply in redis.pipeline(commands) if isinstance(reply, RedisRefused)]
    if refused:
        raise refused[0]
