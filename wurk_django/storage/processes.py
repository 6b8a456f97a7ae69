"""The process set, heartbeats, running jobs and signals.

Wire: set `processes`, hash `<identity>` with a time to live, hash `<identity>:work`, list `<identity>-signals`.
Sidekiq 8.1, lib/sidekiq/launcher.rb.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import keys
from ..clock import monotonic
from ..connection import Argument, Redis
from ..errors import MalformedPayload
from ..script import Script
from ..wire import decode

CLEANUP_LOCK_S = 60  # at most one prune of the process set a minute, fleet-wide

_heartbeat = Script("wurk_django.storage", "heartbeat")
_FIELDS = ("info", "concurrency", "busy", "beat", "quiet", "rss", "rtt_us")


class Beat(NamedTuple):
    """The answer to a beat: was the process known before, and which signals were waiting, oldest first."""

    known: bool
    signals: list[str]


class Process(NamedTuple):
    """What one process said of itself with its last beat. `beat` is epoch seconds by its own clock."""

    identity: str
    info: dict[str, Any]
    concurrency: int
    busy: int
    beat: float
    quiet: bool
    rss_kb: int
    rtt_us: int = 0

    @property
    def embedded(self) -> bool:
        """Lives in a host's process and cannot be stopped from outside."""
        return self.info.get("embedded") is True

    @property
    def queues(self) -> list[str]:
        """The queues that it serves, each once."""
        capsules = self.info.get("capsules")
        if isinstance(capsules, dict) and capsules:
            served = [name for capsule in capsules.values() for name in _dict(_dict(capsule).get("weights"))]
        else:
            listed = self.info.get("queues")
            served = [str(name) for name in listed] if isinstance(listed, list) else []
        return list(dict.fromkeys(served))

    @property
    def weights(self) -> list[dict[str, int]]:
        """The queues of each capsule with their weights."""
        capsules = self.info.get("capsules")
        if isinstance(capsules, dict) and capsules:
            return [_dict(_dict(capsule).get("weights")) for capsule in capsules.values()]
        listed = self.info.get("weights")  # Sidekiq before 8
        return [_dict(weights) for weights in listed] if isinstance(listed, list) else []


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
    return snapshot(redis)[0]


def snapshot(redis: Redis) -> tuple[frozenset[str], frozenset[str]]:
    """Who is alive, as `live_owners` has it, and whose heartbeat has lapsed without a farewell."""
    members = [(member.decode("utf-8", "replace"), info is not None) for member, info in _with_info(redis)]
    alive = frozenset(member for member, beats in members if beats)
    lapsed = frozenset(member for member, beats in members if not beats)
    return alive | {identity.rpartition(":")[0] for identity in alive}, lapsed


def is_alive(redis: Redis, identity: str) -> bool:
    """Does this process have a heartbeat at this moment?"""
    return bool(redis.execute("HEXISTS", identity, "info", idempotent=True))


def last_beats(redis: Redis, identities: Sequence[str]) -> list[bytes | None]:
    """When each of these processes last beat, by its own clock, as it wrote it; None without a heartbeat."""
    beats = redis.pipeline([("HGET", identity, "beat") for identity in identities], idempotent=True)
    return [beat if isinstance(beat, bytes) else None for beat in beats]


def all_processes(redis: Redis) -> list[Process]:
    """Every process with a heartbeat, by identity. Processes of other versions and languages are among them."""
    members = sorted(redis.execute("SMEMBERS", keys.PROCESSES, idempotent=True))
    rows = redis.pipeline([("HMGET", member, *_FIELDS) for member in members], idempotent=True)
    found = []
    for member, row in zip(members, rows, strict=True):
        if isinstance(row, list) and row[0] is not None:  # another type, or lapsed
            found.append(_read_process(member.decode("utf-8", "replace"), *row))
    return found


def find(redis: Redis, identity: str) -> Process | None:
    """One process; None when it is not in the set or has no heartbeat."""
    known, row = redis.transaction(
        [("SISMEMBER", keys.PROCESSES, identity), ("HMGET", identity, *_FIELDS)], idempotent=True
    )
    return _read_process(identity, *row) if known and row[0] is not None else None


def running(redis: Redis) -> list[tuple[str, str, bytes]]:
    """What every process runs: identity, thread, and its row as it was written. Rows without text are passed over."""
    members = sorted(redis.execute("SMEMBERS", keys.PROCESSES, idempotent=True))
    tables = redis.pipeline([("HGETALL", member + keys.work("").encode()) for member in members], idempotent=True)
    return [
        (member.decode("utf-8", "replace"), table[at].decode("utf-8", "replace"), table[at + 1])
        for member, table in zip(members, tables, strict=True)
        if isinstance(table, list)  # else a key of another type
        for at in range(0, len(table), 2)
        if table[at + 1]
    ]


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


def _read_process(
    identity: str,
    raw_info: bytes,
    concurrency: bytes | None,
    busy: bytes | None,
    beat: bytes | None,
    quiet: bytes | None,
    rss: bytes | None,
    rtt_us: bytes | None,
) -> Process:
    try:
        info = _dict(decode(raw_info))
    except MalformedPayload:
        info = {}
    # Sidekiq 7 has its concurrency in `info` only.
    threads = concurrency if concurrency is not None else info.get("concurrency")
    numbers = int(_number(threads)), int(_number(busy)), _number(beat)
    return Process(identity, info, *numbers, quiet == b"true", int(_number(rss)), int(_number(rtt_us)))


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number is 0
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
