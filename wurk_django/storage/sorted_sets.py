"""The sorted sets `schedule`, `retry` and `dead`: who comes in, and how due jobs leave.

Scores are epoch seconds (float). Every move out of a private list first proves that the job is still there
(docs/spec/reliability.md §4.1, 7.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import keys
from ..config import ALONE, Options, Replication
from ..connection import Argument, Redis, Session
from ..errors import RedisRefused
from ..script import Script
from ..wire import MAX_CLAIM_BYTES
from .queues import Lane, confirmed

PROMOTE_BATCH = 500  # members a promotion call handles
PAGE_BYTES = 2 << 20  # a page ends with the member that reaches this, so that no call holds Redis for long

_retry = Script("wurk_django.storage", "retry")
_bury = Script("wurk_django.storage", "bury", "trim")
_kill = Script("wurk_django.storage", "kill", "trim")
_trim = Script("wurk_django.storage", "trim_dead", "trim")
_promote = Script("wurk_django.storage", "promote", "trim")
_page = Script("wurk_django.storage", "page")
_to_queue = Script("wurk_django.storage", "to_queue")
_to_dead = Script("wurk_django.storage", "to_dead", "trim")


class Member(NamedTuple):
    """One member of a sorted set: its exact bytes and its score, epoch seconds."""

    raw: bytes
    score: float


class Move(NamedTuple):
    """What goes from a sorted set to a queue: the member as it was read, and the payload to push."""

    member: bytes
    queue: str
    payload: bytes


class Promoted(NamedTuple):
    """What one promotion call did: members handled, due members that had to stay, the key that blocks one of them,
    and whether more may be due."""

    handled: int
    stuck: int
    blocked_by: str
    more: bool = False


def schedule(redis: Redis, members: Sequence[tuple[float, bytes]], replication: Replication = ALONE) -> int:
    """Put jobs into the schedule. May be sent again: they are the same members.

    Returns how many replicas have confirmed, if that was asked for.
    Wire: ZADD schedule <epoch seconds> <json>. Sidekiq 8.1, lib/sidekiq/client.rb, raw_push.
    """
    pairs = [part for score, raw in members for part in (score, raw)]
    if not replication.replicas:
        redis.execute("ZADD", keys.SCHEDULE, *pairs, idempotent=True)
        return 0
    wait = ("WAIT", replication.replicas, int(replication.timeout_s * 1000))

    def block(session: Session) -> list[Any]:
        replies = session.pipeline([("ZADD", keys.SCHEDULE, *pairs), wait])
        if isinstance(replies[0], RedisRefused):
            raise replies[0]
        return replies

    return confirmed(redis.run(block, idempotent=True)[1:])


def book_retry(redis: Redis, lane: Lane, counter: str, payload: bytes, retry_payload: bytes, delay_s: float) -> bool:
    """Move a running job to the retry set, due `delay_s` from now. False: no longer ours, nothing was written."""
    arguments = (payload, retry_payload, delay_s)
    return bool(_retry.run(redis, (lane.private, keys.RETRY, counter), arguments, idempotent=True))


def bury(redis: Redis, lane: Lane, counter: str, payload: bytes, dead_payload: bytes, options: Options) -> bool:
    """Move a running job to the dead set and trim it. False: it was no longer ours, nothing was written."""
    arguments = (payload, dead_payload, options.dead_timeout_in_seconds, options.dead_max_jobs)
    return bool(_bury.run(redis, (lane.private, keys.DEAD, counter), arguments, idempotent=True))


def score(redis: Redis, set_name: str, payload: bytes) -> float | None:
    """Where these bytes stand in a set; None when they are not there."""
    found = redis.execute("ZSCORE", set_name, payload, idempotent=True)
    return None if found is None else float(found)


def kill(redis: Redis, payload: bytes, options: Options, *, trim: bool = True) -> None:
    """Put these exact bytes into the dead set, scored now."""
    arguments = (payload, options.dead_timeout_in_seconds, options.dead_max_jobs, int(trim))
    _kill.run(redis, (keys.DEAD,), arguments, idempotent=True)


def trim_dead(redis: Redis, max_jobs: int, timeout_s: float) -> int:
    """Trim the dead set by count and age; returns how many are left. At most 1,000 are removed a call."""
    left: int = _trim.run(redis, (keys.DEAD,), (timeout_s, max_jobs), idempotent=True)
    return left


def trim_backlog(redis: Redis, max_jobs: int, timeout_s: float) -> int:
    """Trim the dead set, in slices, until both limits hold; returns how many are left."""
    left = trim_dead(redis, max_jobs, timeout_s)
    while (fewer := trim_dead(redis, max_jobs, timeout_s)) < left:
        left = fewer
    return left


def sizes(redis: Redis) -> dict[str, int]:
    """How many jobs are in each of the sets, by name."""
    names = (keys.SCHEDULE, keys.RETRY, keys.DEAD)
    replies = redis.pipeline([("ZCARD", name) for name in names], idempotent=True)
    return {name: reply if isinstance(reply, int) else 0 for name, reply in zip(names, replies, strict=True)}


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


# --- read and changed from outside ------------------------------------------------------------------------------------


def size(redis: Redis, set_name: str) -> int:
    """How many members there are."""
    number: int = redis.execute("ZCARD", set_name, idempotent=True)
    return number


def ranked(redis: Redis, set_name: str, first: int, count: int, *, newest_first: bool) -> tuple[int, list[Member]]:
    """How many members there are, and those of `count` ranks from `first` on."""
    order = ("REV", "WITHSCORES") if newest_first else ("WITHSCORES",)
    last = first + count - 1
    total, flat = redis.transaction([("ZCARD", set_name), ("ZRANGE", set_name, first, last, *order)], idempotent=True)
    return total, _members(flat)


def following(
    redis: Redis, set_name: str, score: float, member: bytes | None = None, *, up: bool = True, count: int = 50
) -> list[Member]:
    """The next members in the order of score and bytes: from this score on, or behind this member of it.

    The member may be gone. A page may be short without being the last; an empty one is. At most 1,000.
    """
    arguments: list[Argument] = ["up" if up else "down", score, count, PAGE_BYTES]
    if member is not None:
        arguments.append(member)
    return _members(_page.run(redis, (set_name,), arguments, idempotent=True))


def scan(redis: Redis, set_name: str, cursor: int, pattern: str, count: int) -> tuple[int, list[Member]]:
    """One step through the members that match a glob, in no order; may give one twice. A cursor of 0 is the end."""
    command = ("ZSCAN", set_name, cursor, "MATCH", pattern, "COUNT", count)
    position, flat = redis.execute(*command, idempotent=True)
    return int(position), _members(flat)


def add(redis: Redis, set_name: str, score: float, raw: bytes) -> None:
    """Put a member into the set, or give it this score."""
    redis.execute("ZADD", set_name, score, raw, idempotent=True)


def clear(redis: Redis, set_name: str) -> None:
    """Delete the whole set."""
    redis.execute("UNLINK", set_name)


def remove(redis: Redis, set_name: str, members: Sequence[bytes]) -> int:
    """Delete these members; returns how many were there."""
    removed: int = redis.execute("ZREM", set_name, *members)
    return removed


def move_to_queues(redis: Redis, set_name: str, moves: Sequence[Move]) -> list[int]:
    """Move members to queues: for each 1, 0 when it was gone, -1 when the key of its queue holds something else."""
    names = (set_name, keys.QUEUES, *(keys.queue(move.queue) for move in moves))
    arguments = [part for move in moves for part in (move.member, move.queue, move.payload)]
    moved: list[int] = _to_queue.run(redis, names, arguments)
    return moved


def move_to_dead(
    redis: Redis, set_name: str, members: Sequence[bytes], options: Options, *, trim: bool = True
) -> list[bool]:
    """Move members to the dead set, scored now; for each whether it was still there."""
    arguments: list[Argument] = [options.dead_timeout_in_seconds, options.dead_max_jobs, int(trim), *members]
    return [bool(moved) for moved in _to_dead.run(redis, (set_name, keys.DEAD), arguments)]


def reschedule(redis: Redis, set_name: str, member: bytes, score: float) -> bool:
    """Give a member another score. False: it is no longer there, and nothing was written."""
    commands = [("ZADD", set_name, "XX", score, member), ("ZSCORE", set_name, member)]
    return redis.transaction(commands, idempotent=True)[1] is not None


def _members(flat: Sequence[bytes]) -> list[Member]:
    return [Member(flat[at], float(flat[at + 1])) for at in range(0, len(flat), 2)]
