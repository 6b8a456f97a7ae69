"""Private lists whose owner may be dead: find them, ask how long they were idle, bring their jobs back.

Reading a list makes it look alive to OBJECT IDLETIME (docs/spec/safety.md, fact 5), so nothing here reads one with
ordinary commands but the drain itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from .. import keys
from ..clock import monotonic
from ..config import Options
from ..connection import Argument, Redis
from ..errors import RedisRefused
from ..script import Script

SCAN_COUNT = 1000
BOOT_LOCK_S = 1.0  # of processes that start together one looks
COUNTED_S = 259_200  # how long recoveries of a job are remembered: 72 hours
DRAIN_SLICE = 100

_drain = Script("wurk_django.storage", "drain")
_bury_poison = Script("wurk_django.storage", "bury_poison", "trim")


class Fate(Enum):
    """What a drain did with one payload."""

    GONE = 0
    MOVED = 1
    POISON = 2


def private_lists(redis: Redis, ends: Callable[[float], bool] = lambda _: False) -> Iterator[str]:
    """The keys that look like private lists. A key may come twice; other shapes may be among them.

    `ends` is told after each look how many seconds it took; it may rest, and with True the search is over.
    """
    pattern = keys.QUEUE_PREFIX + "*|*"
    cursor = b"0"
    while True:
        asked_at = monotonic()
        cursor, found = redis.execute(
            "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "list", idempotent=True
        )
        took_s = monotonic() - asked_at
        for key in found:
            yield key.decode("utf-8", "surrogateescape")
        if cursor == b"0" or ends(took_s):
            return


def take_sweep_lock(redis: Redis, queue_names: Sequence[str], interval_s: float) -> bool:
    """May this process sweep now? One sweep an interval for each set of served queues."""
    return take_lock(redis, keys.reaper_lock(_digest(queue_names)), interval_s)


def take_boot_lock(redis: Redis, queue_names: Sequence[str]) -> bool:
    """May this process, which has just started, look at once? Of those that start together one does."""
    return take_lock(redis, keys.reaper_boot_lock(_digest(queue_names)), BOOT_LOCK_S)


def take_lock(redis: Redis, key: str, seconds: float) -> bool:
    """True for the first who asks in this time, fleet-wide."""
    return bool(redis.execute("SET", key, "1", "NX", "PX", max(int(seconds * 1000), 1)))


def idle_seconds(redis: Redis, key: str) -> int | None:
    """Seconds since anybody touched the list; None when it is gone. Raises RedisRefused if the server cannot tell."""
    try:
        idle: int | None = redis.execute("OBJECT", "IDLETIME", _bytes(key), idempotent=True)
    except RedisRefused as refusal:
        if "no such key" in str(refusal):
            return None
        raise
    return idle


def newest(redis: Redis, key: str, skip: int = 0) -> list[bytes]:
    """The next slice to drain, newest first, behind `skip` jobs that stay. Resets the list's idle time: only for a list
    that is being drained."""
    payloads: list[bytes] = redis.execute("LRANGE", _bytes(key), skip, skip + DRAIN_SLICE - 1, idempotent=True)
    return payloads


def drain(
    redis: Redis,
    key: str,
    queue_name: str,
    identity: str | None,
    payloads: Sequence[bytes],
    counters: Sequence[str],
    limit: int,
) -> list[Fate]:
    """Bring jobs back to the consuming end of their queue, counting each; one that came back `limit` times stays.

    `counters`: the key that counts for each payload, empty for none. Returns what became of each; nothing when there
    was nothing to do, or when the process of the identity is alive after all.
    """
    if not payloads:
        return []
    names: list[Argument] = [_bytes(key), keys.queue(queue_name), identity or "", *counters]
    arguments: list[Argument] = ["1" if identity else "0", limit, COUNTED_S, *payloads]
    return [Fate(number) for number in _drain.run(redis, names, arguments, idempotent=True)]


def bury_poison(
    redis: Redis, key: str, identity: str | None, counter: str, payload: bytes, options: Options, *, keep: bool
) -> tuple[bool, float | None]:
    """Move a job from a private list to the dead set, or, unless `keep`, remove it for good.

    Returns whether it was there and is gone, and its score in the dead set. With an identity nothing is done when that
    process is alive after all.
    """
    names: list[Argument] = [_bytes(key), keys.DEAD, counter, identity or ""]
    limits = (options.dead_timeout_in_seconds, options.dead_max_jobs)
    arguments: list[Argument] = ["1" if identity else "0", int(keep), payload, *limits]
    score: bytes | None = _bury_poison.run(redis, names, arguments, idempotent=True)
    return score is not None, float(score) if score else None


def describe_unreadable(redis: Redis, key: str) -> tuple[bool, int]:
    """Is this list after all a public queue, and how many entries has it?"""
    name = _bytes(key).removeprefix(keys.QUEUE_PREFIX.encode())
    known, length = redis.pipeline([("SISMEMBER", keys.QUEUES, name), ("LLEN", _bytes(key))], idempotent=True)
    return known == 1, length if isinstance(length, int) else 0


def _digest(queue_names: Sequence[str]) -> str:
    return hashlib.sha1("\n".join(sorted(queue_names)).encode(), usedforsecurity=False).hexdigest()[:16]


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
