"""Queues and private lists: push, claim, acknowledge, give back.

A claimed job is in the private list of its process until its outcome is booked (docs/spec/reliability.md §3, 4).
Jobs are addressed by the bytes that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import keys
from ..config import Options
from ..connection import Redis, Session, pack
from ..errors import RedisRefused
from ..script import Script
from ..wire import MAX_CLAIM_BYTES

MAX_CLAIM = 100  # jobs a dispatch call may take
MAX_ACKS = 500  # acks a dispatch call may carry; two keys each

_dispatch = Script("wurk_django.storage", "dispatch", "trim")
_requeue = Script("wurk_django.storage", "requeue")
_held = Script("wurk_django.storage", "held", "trim")


class _Changes:
    """How often this process paused or unpaused a queue. A missed increment in a race only delays a look by 2 s."""

    count = 0


_changes = _Changes()


class Lane(NamedTuple):
    """One queue as one process sees it: where jobs come from and where this process keeps what it claimed."""

    name: str
    public: str
    private: str


class Ack(NamedTuple):
    """What an acknowledgement removes: one copy of the payload and the recovery counter."""

    private: str
    counter: str
    payload: bytes


class Claimed(NamedTuple):
    """One job taken by a claim. No payload: it was over the size cap and went to the dead set unread."""

    lane: Lane
    payload: bytes | None


def public_key(name: str) -> str:
    """The key of a queue's list."""
    return keys.queue(name)


def push(redis: Redis, payloads: Mapping[str, Sequence[bytes]]) -> None:
    """Put jobs at the producing end of their queues, the first to run first. One round trip, not atomic.

    Never sent twice: raises RedisUnavailable when the answer was lost, and then the jobs may be there.
    Wire: SADD queues, LPUSH queue:<name>. Sidekiq 8.1, lib/sidekiq/client.rb, raw_push.
    """
    packed = pack("SADD", keys.QUEUES, *payloads) + b"".join(
        pack("LPUSH", keys.queue(name), *raws) for name, raws in payloads.items()
    )
    count = 1 + len(payloads)
    redis.run(lambda session: _raise_refusal(session.pipeline_packed(packed, count)))


def dispatch(
    redis: Redis, acks: Sequence[Ack], lanes: Sequence[Lane], limits: Sequence[int], wanted: int, options: Options
) -> list[Claimed]:
    """Acknowledge and claim in one call: up to `wanted` jobs, from each lane at most its limit, in their order.

    Not idempotent: a claim whose answer is lost is found by `held`. With no lanes it is a flush and may be repeated.
    """
    arguments: list[Any] = [
        keys.DEAD,
        *(key for ack in acks for key in (ack.private, ack.counter)),
        *(key for lane in lanes for key in (lane.public, lane.private)),
        len(acks),
        wanted,
        MAX_CLAIM_BYTES,
        options.dead_timeout_in_seconds,
        options.dead_max_jobs,
        *limits,
        *(ack.payload for ack in acks),
    ]
    count = 1 + 2 * (len(acks) + len(lanes))
    flat = _dispatch.run(redis, arguments[:count], arguments[count:], idempotent=not lanes)
    return [Claimed(lanes[flat[i] - 1], flat[i + 1]) for i in range(0, len(flat), 2)]


def requeue(redis: Redis, jobs: Sequence[tuple[Lane, bytes]]) -> int:
    """Give jobs back to the consuming end of their queues, each only if its private list still holds it.

    `jobs` newest claim first, so that the oldest is next to run again. Returns how many moved; raises the first
    refusal after all were tried.
    """
    if not jobs:
        return 0
    calls = [((lane.private, lane.public), (payload,)) for lane, payload in jobs]
    replies = _requeue.run_many(redis, calls, idempotent=True)
    _raise_refusal(replies)
    return sum(replies)


def held(redis: Redis, lane: Lane, options: Options) -> list[bytes]:
    """What the private list of this lane holds, newest first; payloads over the size cap go to the dead set."""
    arguments = (MAX_CLAIM_BYTES, options.dead_timeout_in_seconds, options.dead_max_jobs)
    payloads: list[bytes] = _held.run(redis, (keys.DEAD, lane.private), arguments, idempotent=True)
    return payloads


def held_counts(redis: Redis, lanes: Sequence[Lane]) -> list[int]:
    """The length of each private list."""
    replies = redis.pipeline([("LLEN", lane.private) for lane in lanes], idempotent=True)
    _raise_refusal(replies)
    return replies


def pause(redis: Redis, name: str) -> bool:
    """Let nobody claim from this queue; running jobs finish, pushes go on. True if it was not paused before."""
    changed = bool(redis.execute("SADD", keys.PAUSED, name, idempotent=True))
    _changes.count += 1
    return changed


def unpause(redis: Redis, name: str) -> bool:
    """Let the queue be claimed from again. True if it was paused."""
    changed = bool(redis.execute("SREM", keys.PAUSED, name, idempotent=True))
    _changes.count += 1
    return changed


def pause_generation() -> int:
    """Changes with every pause and unpause of this process, so that its dispatchers look again at once."""
    return _changes.count


def paused(redis: Redis) -> frozenset[str]:
    """The names of the queues that nobody may claim from. Wire: set `paused`, Sidekiq Pro."""
    members = redis.execute("SMEMBERS", keys.PAUSED, idempotent=True)
    return frozenset(member.decode("utf-8", "replace") for member in members)


def unfinished(redis: Redis, lanes: Sequence[Lane]) -> int:
    """How many jobs of these lanes wait or are claimed by this process, seen at one moment.

    What waits on a paused queue does not count: nobody will claim it.
    """
    lengths = [("LLEN", key) for lane in lanes for key in (lane.public, lane.private)]
    members, *counts = redis.transaction([("SMEMBERS", keys.PAUSED), *lengths], idempotent=True)
    waiting = {lane: counts[2 * index] for index, lane in enumerate(lanes) if lane.name.encode() not in members}
    total: int = sum(waiting.values()) + sum(counts[1::2])
    return total


def blocking_claim(lane: Lane, block_s: float) -> bytes:
    """The packed command that waits for one job of a lane, for a dedicated connection."""
    return pack("BLMOVE", lane.public, lane.private, "RIGHT", "LEFT", block_s)


def unblock(session_ids: Sequence[int], redis: Redis) -> list[bool]:
    """End the blocking claims of these connections: each that was waiting answers nil. Which ones were?"""
    replies = redis.pipeline([("CLIENT", "UNBLOCK", number) for number in session_ids], idempotent=True)
    _raise_refusal(replies)
    return [bool(reply) for reply in replies]


def connection_id(session: Session) -> int:
    """The server's number for a connection, which `unblock` takes."""
    number: int = session.execute("CLIENT", "ID")
    return number


def _raise_refusal(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply
