"""Private lists whose owner may be dead: find them, ask how long they were idle, bring their jobs back.

Reading a list makes it look alive to OBJECT IDLETIME (docs/spec/safety.md, fact 5), so nothing here reads one with
ordinary commands but the drain itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from .. import keys
from ..connection import Redis
from ..errors import RedisRefused
from ..script import Script

SCAN_COUNT = 100
DRAIN_SLICE = 100

_drain = Script("wurk_django.storage", "drain")
_GLOB = str.maketrans({character: "\\" + character for character in "\\*?[]^-"})


def private_lists(redis: Redis, queue_name: str) -> Iterator[str]:
    """The keys that look like private lists of one queue. A key may come twice; other shapes may be among them."""
    pattern = keys.queue(queue_name).translate(_GLOB) + "|*"
    cursor = b"0"
    while True:
        cursor, found = redis.execute(
            "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "list", idempotent=True
        )
        for key in found:
            yield key.decode("utf-8", "surrogateescape")
        if cursor == b"0":
            return


def take_sweep_lock(redis: Redis, queue_names: Sequence[str], interval_s: float) -> bool:
    """May this process sweep now? One sweep an interval for each set of served queues."""
    digest = hashlib.sha1("\n".join(sorted(queue_names)).encode(), usedforsecurity=False).hexdigest()[:16]
    milliseconds = max(int(interval_s * 1000), 1)
    return bool(redis.execute("SET", keys.reaper_lock(digest), "1", "NX", "PX", milliseconds))


def idle_seconds(redis: Redis, key: str) -> int | None:
    """Seconds since anybody touched the list; None when it is gone. Raises RedisRefused if the server cannot tell."""
    try:
        idle: int | None = redis.execute("OBJECT", "IDLETIME", _bytes(key), idempotent=True)
    except RedisRefused as refusal:
        if "no such key" in str(refusal):
            return None
        raise
    return idle


def newest(redis: Redis, key: str) -> list[bytes]:
    """The next slice to drain, newest first. Resets the list's idle time: only for a list that is being drained."""
    payloads: list[bytes] = redis.execute("LRANGE", _bytes(key), 0, DRAIN_SLICE - 1, idempotent=True)
    return payloads


def drain(redis: Redis, key: str, queue_name: str, identity: str | None, payloads: Sequence[bytes]) -> int:
    """Bring jobs back to the consuming end of their queue. With an identity, -1 if it is alive after all."""
    names = (_bytes(key), keys.queue(queue_name), identity or "")
    moved: int = _drain.run(redis, names, ("1" if identity else "0", *payloads), idempotent=True)
    return moved


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
