"""Deploy marks: when which version went live, for the lines in the graphs.

Wire: hash `YYYYMMDD-marks`, ISO-8601 minute to label; string `deploylock-<label>`. Sidekiq 8.1, lib/sidekiq/deploy.rb.
"""

from __future__ import annotations

from datetime import UTC, datetime

from .. import keys
from ..connection import Redis
from ..errors import RedisRefused

MARKS_TTL_S = 7_776_000  # 90 days
LOCK_S = 60  # every machine of a deployment marks it; the first one counts


def mark(redis: Redis, label: str, at: datetime | None = None) -> str | None:
    """Mark this minute (UTC); returns it as written, None when the same label was marked within the last minute."""
    minute = (at or datetime.now(UTC)).astimezone(UTC).replace(second=0, microsecond=0)
    stamp = minute.strftime("%Y-%m-%dT%H:%M:%SZ")
    if not redis.execute("SET", keys.deploy_lock(label), stamp, "NX", "EX", LOCK_S):
        return None
    name = keys.deploy_marks(minute.strftime("%Y%m%d"))
    replies = redis.transaction([("HSETNX", name, stamp, label), ("EXPIRE", name, MARKS_TTL_S)], idempotent=True)
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply
    return stamp


def marks(redis: Redis, date: str) -> dict[str, str]:
    """The marks of one day, YYYYMMDD: minute to label."""
    flat: list[bytes] = redis.execute("HGETALL", keys.deploy_marks(date), idempotent=True)
    texts = [part.decode("utf-8", "replace") for part in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
