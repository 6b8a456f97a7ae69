"""What the interop tests look at in Redis, and wait for."""

from __future__ import annotations

import json
import re
from typing import Any

import redis

from tests.support.ruby import wait_for

RAN_KEY = "interop:ran"  # a line for each run, written by the jobs of both languages
DEADLINE_S = 20.0

Row = dict[str, Any]


def rows_ran(store: redis.Redis) -> dict[str, Row]:
    """What the jobs wrote down, by jid. A job that ran twice fails the test."""
    rows = [json.loads(line) for line in store.lrange(RAN_KEY, 0, -1)]
    by_jid = {row["jid"]: row for row in rows}
    assert len(by_jid) == len(rows), f"a job ran twice: {rows}"
    return by_jid


def wait_until_ran(store: redis.Redis, *jids: str) -> list[Row]:
    """The rows of these jobs, in this order, once all are there."""
    wait_for(lambda: set(jids) <= set(rows_ran(store)), f"{len(jids)} jobs to run", DEADLINE_S)
    ran = rows_ran(store)
    return [ran[jid] for jid in jids]


def raw_members(store: redis.Redis, key: str) -> list[bytes]:
    """The raw payloads in a queue's list (newest first) or a sorted set (lowest score first)."""
    return list(store.lrange(key, 0, -1) if key.startswith("queue:") else store.zrange(key, 0, -1))


def wait_for_members(store: redis.Redis, key: str, count: int = 1) -> list[bytes]:
    wait_for(lambda: len(raw_members(store, key)) >= count, f"{count} members in {key}", DEADLINE_S)
    found = raw_members(store, key)
    assert len(found) == count
    return found


def wait_for_member(store: redis.Redis, key: str, jid: str, **fields: Any) -> Row:
    """The parsed job with this jid in `key`, once it is there with these fields."""

    def look() -> Row | None:
        rows = [json.loads(raw) for raw in raw_members(store, key)]
        fitting = [row for row in rows if row["jid"] == jid and fields.items() <= row.items()]
        return fitting[0] if fitting else None

    return wait_for(look, f"{jid} in {key} with {fields}", DEADLINE_S) or {}


def without_enqueued_at(raw: bytes | str) -> str:
    """The payload's text with that field cut out. Our scheduler adds a missing one in front, Sidekiq's at the end."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    return re.sub(r',"enqueued_at":[\d.]+(?=[,}])|(?<=\{)"enqueued_at":[\d.]+,', "", text, count=1)


def make_due(store: redis.Redis, *sets: str) -> None:
    """Let every member of these sets be due since long, so that the next pass of any scheduler moves it."""
    for name in sets:
        for member in store.zrange(name, 0, -1):
            store.zadd(name, {member: 1.0}, xx=True)


def private_lists(store: redis.Redis) -> list[bytes]:
    """The lists of claimed, unacknowledged jobs that hold anything."""
    return list(store.keys("queue:*|*"))


def process_field(store: redis.Redis, identity: str, name: str) -> str | None:
    value = store.hget(identity, name)
    return value.decode() if value is not None else None
