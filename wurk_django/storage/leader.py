"""The lock of the leader and the counter of its terms.

Wire: string `dear-leader`, the identity of the leader, with a time to live. Sidekiq Enterprise; its open-source code
compares the value with the identities of processes (docs/spec/reliability.md §10).
"""

from __future__ import annotations

from .. import keys
from ..connection import Redis
from ..script import Script

_campaign = Script("wurk_django.storage", "campaign")
_release = Script("wurk_django.storage", "release_if_owner")


def campaign(redis: Redis, lock: str, identity: str, ttl_s: float) -> bool:
    """Take the lock, or keep it for another `ttl_s`. False: somebody else leads."""
    return bool(_campaign.run(redis, (lock,), (identity, max(int(ttl_s * 1000), 1)), idempotent=True))


def release_if_owner(redis: Redis, lock: str, owner: str) -> bool:
    """Give up a lock. False: it was no longer this owner's, and nothing was changed."""
    return bool(_release.run(redis, (lock,), (owner,), idempotent=True))


def begin_term(redis: Redis) -> int:
    """The number of a new term: larger than that of every term before. Never sent twice: a number may be skipped."""
    number: int = redis.execute("INCR", keys.LEADER_TERMS)
    return number


def current(redis: Redis, lock: str) -> str:
    """The identity of the leader; empty when nobody leads."""
    holder: bytes | None = redis.execute("GET", lock, idempotent=True)
    return holder.decode("utf-8", "replace") if holder else ""
