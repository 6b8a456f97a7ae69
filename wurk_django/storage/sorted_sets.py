"""The sorted sets `schedule`, `retry` and `dead`: who comes in, and how due jobs leave.

Scores are epoch seconds (float). Every move out of a private list first proves that the job is still there
(docs/spec/reliability.md §4.1, 7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import keys
from ..config import Options
from ..connection import Redis
from ..script import Script
from ..wire import MAX_CLAIM_BYTES
from .queues import Lane

PROMOTE_BATCH = 500  # members a promotion call handles

_retry = Script("wurk_django.storage", "retry")
_bury = Script("wurk_django.storage", "bury", "trim")
_kill = Script("wurk_django.storage", "kill", "trim")
_trim = Script("wurk_django.storage", "trim_dead", "trim")
_promote = Script("wurk_django.storage", "promote", "trim")


class Promoted(NamedTuple):
    """What one promotion call did: members handled, due members that had to stay, the key that blocks one of them,
    and whether more may be due."""

    handled: int
    stuck: int
    blocked_by: str
    more: bool = False


def schedule(redis: Redis, members: Sequence[tuple[float, bytes]]) -> None:
    """Put jobs into the schedule. A single one may be sent again: it is the same member.

    Wire: ZADD schedule <epoch seconds> <json>. Sidekiq 8.1, lib/sidekiq/client.rb, raw_push.
    """
    pairs = [part for score, raw in members for part in (score, raw)]
    redis.execute("ZADD", keys.SCHEDULE, *pairs, idempotent=True)


def book_retry(redis: Redis, lane: Lane, counter: str, payload: bytes, retry_payload: bytes, delay_s: float) -> bool:
    """Move a running job to the retry set, due `delay_s` from now. False: no longer ours, nothing was written."""
    arguments = (payload, retry_payload, delay_s)
    return bool(_retry.run(redis, (lane.private, keys.RETRY, counter), arguments, idempotent=True))


def bury(redis: Redis, lane: Lane, counter: str, payload: bytes, dead_payload: bytes, options: Options) -> bool:
    """Move a running job to the dead set and trim it. False: it was no longer ours, nothing was written."""
    arguments = (payload, dead_payload, options.dead_timeout_in_seconds, options.dead_max_jobs)
    return bool(_bury.run(redis, (lane.private, keys.DEAD, counter), arguments, idempotent=True))


def kill(redis: Redis, payload: bytes, options: Options, *, trim: bool = True) -> None:
    """Put these exact bytes into the dead set, scored now."""
    arguments = (payload, options.dead_timeout_in_seconds, options.dead_max_jobs, int(trim))
    _kill.run(redis, (keys.DEAD,), arguments, idempotent=True)


def trim_dead(redis: Redis, max_jobs: int, timeout_s: float) -> int:
    """Trim the dead set by count and age; returns how many are left. At most 1,000 are removed a call."""
    left: int = _trim.run(redis, (keys.DEAD,), (timeout_s, max_jobs), idempotent=True)
    return left


def promote_due(
    redis: Redis, set_name: str, options: Options, *, skip: int = 0, limit: int = PROMOTE_BATCH
) -> Promoted:
    """Move jobs whose time has come from `schedule` or `retry` to their queues, earliest first.

    With `more` the caller goes on, passing over the stuck ones. Atomic: two schedulers never move the same
    job, a crash leaves it in one place, a replay is harmless. Payload bytes stay, but for `enqueued_at`. What is no
    job goes to the dead set byte for byte.
    """
    arguments: tuple[Any, ...] = (
        keys.QUEUE_PREFIX,
        limit,
        skip,
        options.wire_timestamps,
        options.dead_timeout_in_seconds,
        options.dead_max_jobs,
        MAX_CLAIM_BYTES,
    )
    names = (set_name, keys.QUEUES, keys.DEAD)
    handled, stuck, blocked_by, early = _promote.run(redis, names, arguments, idempotent=True)
    more = bool(early) or handled + stuck >= limit
    return Promoted(handled, stuck, blocked_by.decode("utf-8", "replace"), more)
