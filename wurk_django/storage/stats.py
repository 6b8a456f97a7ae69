"""The counters of jobs processed and failed. Wire: `stat:processed`, `stat:failed` and one of each a UTC day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .. import keys
from ..connection import Redis

DAY_TTL_S = 157_680_000  # five years


def totals(redis: Redis) -> tuple[int, int]:
    """Jobs processed and failed since the counters began."""
    processed, failed = redis.execute("MGET", keys.STAT_PROCESSED, keys.STAT_FAILED, idempotent=True)
    return _number(processed), _number(failed)


def add(redis: Redis, processed: int, failed: int) -> None:
    """Add to the lifetime and day totals, all or none. Not repeated on a lost answer; raises when Redis refused it."""
    if not processed and not failed:
        return
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    commands: list[tuple[str | int, ...]] = []
    for stat, amount in ((keys.STAT_PROCESSED, processed), (keys.STAT_FAILED, failed)):
        day = keys.per_day(stat, today)
        commands += [("INCRBY", stat, amount), ("INCRBY", day, amount), ("EXPIRE", day, DAY_TTL_S)]
    redis.transaction(commands)  # else a crash after INCRBY leaves a day that never expires


def of_days(redis: Redis, dates: Sequence[str]) -> list[tuple[int, int]]:
    """Jobs processed and failed on each of these UTC days, YYYY-MM-DD."""
    names = [keys.per_day(stat, date) for stat in (keys.STAT_PROCESSED, keys.STAT_FAILED) for date in dates]
    counts = [_number(text) for text in redis.execute("MGET", *names, idempotent=True)]
    return list(zip(counts[: len(dates)], counts[len(dates) :], strict=True))


def reset(redis: Redis, *, processed: bool, failed: bool) -> None:
    """Begin the lifetime totals anew. The days stay."""
    chosen = [name for name, wanted in ((keys.STAT_PROCESSED, processed), (keys.STAT_FAILED, failed)) if wanted]
    if chosen:
        redis.execute("MSET", *(part for name in chosen for part in (name, 0)))


def _number(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
