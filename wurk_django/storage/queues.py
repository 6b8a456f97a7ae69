"""Queues and private lists: push, claim, acknowledge, give back.

A claimed job is in the private list of its process until its outcome is booked (docs/spec/reliability.md §3, 4).
Jobs are addressed by the bytes that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import clock, keys
from ..config import ALONE, Options, Replication
from ..connection import Redis, Session, pack
from ..errors import MalformedPayload, RedisRefused, RedisUnavailable
from ..script import Script
from ..wire import MAX_CLAIM_BYTES, decode, read_time

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


class Summary(NamedTuple):
    """One queue from outside. `latency_s` is the age of the job that has waited longest, 0 when there is none."""

    name: str
    size: int
    latency_s: float
    paused: bool


def public_key(name: str) -> str:
    """The key of a queue's list."""
    return keys.queue(name)


def push(
    redis: Redis,
    payloads: Mapping[str, Sequence[bytes]],
    replication: Replication = ALONE,
    pushed: list[str] | None = None,
) -> int:
    """Put jobs at the producing end of their queues, the first to run first. One round trip, not atomic.

    Never sent twice: raises RedisUnavailable when the answer was lost, and then the jobs may be there. `pushed`
    learns the names of the queues that have their jobs for certain, also when this raises. Returns how many replicas
    have confirmed, if that was asked for; 0 too when only their answer was lost.
    Wire: SADD queues, LPUSH queue:<name>. Sidekiq 8.1, lib/sidekiq/client.rb, raw_push. WAIT is told of everything
    that its connection wrote before.
    """
    packed = pack("SADD", keys.QUEUES, *payloads) + b"".join(
        pack("LPUSH", keys.queue(name), *raws) for name, raws in payloads.items()
    )
    count = 1 + len(payloads)
    if replication.replicas:
        packed += pack("WAIT", replication.replicas, int(replication.timeout_s * 1000))
    replies: list[Any] = []

    def block(session: Session) -> None:
        replies.clear()
        session.pipeline_packed(packed, count + bool(replication.replicas), replies)
        _raise_refusal(replies[:count])

    try:
        redis.run(block)
    except RedisUnavailable:
        if not replication.replicas or len(_applied(replies)) < count:
            raise  # else only the answer of WAIT is missing: the jobs are there
    finally:
        if pushed is not None:
            pushed += [name for name, reply in zip(payloads, replies[1:], strict=False) if _applied([reply])]
    return confirmed(replies[count:])


def confirmed(replies: Sequence[Any]) -> int:
    """What WAIT answered: the replicas that have everything; 0 when it was refused, lost or not asked."""
    return replies[0] if replies and isinstance(replies[0], int) else 0


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


def is_paused(redis: Redis, name: str) -> bool:
    """May nobody claim from this queue just now?"""
    return bool(redis.execute("SISMEMBER", keys.PAUSED, name, idempotent=True))


def paused(redis: Redis) -> frozenset[str]:
    """The names of the queues that nobody may claim from. Wire: set `paused`, Sidekiq Pro."""
    members = redis.execute("SMEMBERS", keys.PAUSED, idempotent=True)
    return frozenset(member.decode("utf-8", "replace") for member in members)


def summaries(redis: Redis, limit: int | None = None) -> list[Summary]:
    """Every queue that was ever pushed to, by name. Beyond `limit` the age of the oldest job is not asked for."""
    paused_names, members = redis.pipeline([("SMEMBERS", keys.PAUSED), ("SMEMBERS", keys.QUEUES)], idempotent=True)
    _raise_refusal([paused_names, members])
    names = sorted(members)
    lists = [keys.QUEUE_PREFIX.encode() + name for name in names]
    lengths = redis.pipeline([("LLEN", key) for key in lists], idempotent=True)
    oldest = redis.pipeline([("LINDEX", key, -1) for key in lists[:limit]], idempotent=True)
    oldest += [None] * (len(names) - len(oldest))
    now_s = clock.now_s()
    return [
        Summary(
            name.decode("utf-8", "replace"),
            size if isinstance(size, int) else 0,
            _age_s(raw, now_s),
            name in paused_names,
        )
        for name, size, raw in zip(names, lengths, oldest, strict=True)
    ]


def names(redis: Redis) -> list[str]:
    """Every queue that was ever pushed to, by name."""
    members = redis.execute("SMEMBERS", keys.QUEUES, idempotent=True)
    return sorted(member.decode("utf-8", "replace") for member in members)


def size(redis: Redis, name: str) -> int:
    """How many jobs wait in a queue."""
    number: int = redis.execute("LLEN", keys.queue(name), idempotent=True)
    return number


def latency_s(redis: Redis, name: str) -> float:
    """The age of the job that has waited longest, 0 when there is none."""
    return _age_s(redis.execute("LINDEX", keys.queue(name), -1, idempotent=True), clock.now_s())


def page(redis: Redis, name: str, first: int, count: int, *, oldest_first: bool = False) -> tuple[int, list[bytes]]:
    """How many jobs wait, and `count` of them from place `first` on: newest first, or the next to run first."""
    last = first + count - 1
    place = (-last - 1, -first - 1) if oldest_first else (first, last)
    total, payloads = redis.transaction(
        [("LLEN", keys.queue(name)), ("LRANGE", keys.queue(name), *place)], idempotent=True
    )
    return total, payloads[::-1] if oldest_first else payloads


def remove(redis: Redis, name: str, payload: bytes) -> bool:
    """Delete one waiting job by its exact bytes. False: it was not there. Not sent twice: its bytes may be, too."""
    return bool(redis.execute("LREM", keys.queue(name), 1, payload))


def clear(redis: Redis, name: str) -> None:
    """Delete a queue with its jobs, and forget its name until the next push."""
    redis.transaction([("UNLINK", keys.queue(name)), ("SREM", keys.QUEUES, name)])


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


def _applied(replies: Sequence[Any]) -> list[Any]:
    return [reply for reply in replies if not isinstance(reply, RedisRefused)]


def _raise_refusal(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, RedisRefused):
            raise reply


def _age_s(raw: Any, now_s: float) -> float:
    """How long a payload has waited; 0 for what tells no time, or one that is still to come."""
    if not isinstance(raw, bytes):
        return 0.0
    try:
        payload = decode(raw)
    except MalformedPayload:
        return 0.0
    fields = payload if isinstance(payload, dict) else {}
    since = read_time(fields.get("enqueued_at")) or read_time(fields.get("created_at"))
    return max(now_s - since, 0.0) if since else 0.0
