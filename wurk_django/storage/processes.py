"""The process set, heartbeats, running jobs and signals.

Wire: set `processes`, hash `<identity>` with a time to live, hash `<identity>:work`, list `<identity>-signals`.
Sidekiq 8.1, lib/sidekiq/launcher.rb.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .. import keys
from ..clock import monotonic
from ..connection import Argument, Redis
from ..script import Script

CLEANUP_LOCK_S = 60  # at most one prune of the process set a minute, fleet-wide

_heartbeat = Script("wurk_django.storage", "heartbeat")


class Beat(NamedTuple):
    """The answer to a beat: was the process known before, and which signals were waiting, oldest first."""

    known: bool
    signals: list[str]


def beat(
    redis: Redis,
    identity: str,
    fields: Mapping[str, Argument],
    work: Mapping[str, bytes],
    ttl_s: float,
    *,
    for_older: bool = False,
) -> Beat:
    """Write one heartbeat. Not repeated on a lost answer: a signal taken twice would be lost.

    `for_older`: write the running jobs also where Sidekiq before 6.5 looks for them.
    """
    flat = [part for pair in fields.items() for part in pair]
    running = [part for pair in work.items() for part in pair]
    names = [keys.PROCESSES, identity, keys.work(identity), keys.signals(identity)]
    if for_older:
        names.append(keys.older_work(identity))
    known, signals = _heartbeat.run(redis, names, (identity, max(int(ttl_s * 1000), 1), len(flat), *flat, *running))
    return Beat(bool(known), [signal.decode("utf-8", "replace") for signal in signals])


def measure_rtt_us(redis: Redis) -> int:
    """The time of one PING in microseconds."""
    started = monotonic()
    redis.execute("PING", idempotent=True)
    return int((monotonic() - started) * 1_000_000)


def deregister(redis: Redis, identity: str) -> None:
    """Take a process that ends out of the set, with its hashes."""
    redis.pipeline(
        [("SREM", keys.PROCESSES, identity), ("UNLINK", keys.work(identity), keys.older_work(identity), identity)],
        idempotent=True,
    )


def prune(redis: Redis) -> int:
    """Remove members of the process set whose heartbeat has lapsed; returns how many. Once a minute, fleet-wide."""
    if not redis.execute("SET", keys.PROCESS_CLEANUP, "1", "NX", "EX", CLEANUP_LOCK_S):
        return 0
    gone = [member for member, info in _with_info(redis) if info is None]
    if not gone:
        return 0
    removed: int = redis.execute("SREM", keys.PROCESSES, *gone, idempotent=True)
    return removed


def live_owners(redis: Redis) -> frozenset[str]:
    """Who is alive: each full identity and its `<host>:<pid>`. Membership alone is not life; a heartbeat is."""
    alive = [member.decode("utf-8", "replace") for member, info in _with_info(redis) if info is not None]
    return frozenset(alive) | {identity.rpartition(":")[0] for identity in alive}


def is_alive(redis: Redis, identity: str) -> bool:
    """Does this process have a heartbeat at this moment?"""
    return bool(redis.execute("HEXISTS", identity, "info", idempotent=True))


def count(redis: Redis) -> int:
    """Members of the process set, lapsed ones included."""
    number: int = redis.execute("SCARD", keys.PROCESSES, idempotent=True)
    return number


def send_signal(redis: Redis, identity: str, signal: str) -> None:
    """Leave a signal for a process, which takes it with its next beat. Wire: TSTP, TERM, TTIN."""
    name = keys.signals(identity)
    redis.transaction([("LPUSH", name, signal), ("EXPIRE", name, 60)])


def _with_info(redis: Redis) -> list[tuple[bytes, bytes | None]]:
    members = sorted(redis.execute("SMEMBERS", keys.PROCESSES, idempotent=True))
    infos = redis.pipeline([("HGET", member, "info") for member in members], idempotent=True)
    # A member that names a key of another type is no process; its refusal counts as no heartbeat.
    return [(member, info if isinstance(info, bytes) else None) for member, info in zip(members, infos, strict=True)]
