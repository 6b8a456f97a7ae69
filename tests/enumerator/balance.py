"""The books: where Redis holds each job, what the ledger says of it, and what of that is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import redis as redis_py

from tests.crash.ledger import Ledger
from tests.enumerator.ground import jid_of

#: Keys that may stay without a time to live (docs/spec/safety.md, after the fault matrix); no private list is one.
LASTING = frozenset({
    "queues", "paused", "schedule", "retry", "dead", "processes", "stat:processed", "stat:failed", "leader-token",
})  # fmt: skip
COUNTERS = ("stat:", "super_fetch:recovered:", "leader-token")


@dataclass(frozen=True)
class Snapshot:
    """What stood in Redis: for each job the keys that hold it, one entry a copy; the counters; what lasts for ever."""

    places: dict[str, list[str]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    lasting: frozenset[str] = frozenset()

    @classmethod
    def take(cls, redis: redis_py.Redis) -> Snapshot:
        keys = list(redis.scan_iter(count=1000))
        pipe = redis.pipeline(transaction=False)
        for key in keys:
            pipe.type(key)
            pipe.ttl(key)
        answers = pipe.execute()
        places: dict[str, list[str]] = defaultdict(list)
        counters, lasting = {}, set()
        for key, kind, ttl in zip(keys, answers[::2], answers[1::2], strict=True):
            name = key.decode()
            if ttl == -1:
                lasting.add(name)
            if kind == b"list" and name.startswith("queue:"):
                _enter(places, name, redis.lrange(key, 0, -1))
            elif name in ("schedule", "retry", "dead"):
                _enter(places, name, redis.zrange(key, 0, -1))
            elif kind == b"string" and name.startswith(COUNTERS):
                counters[name] = int(redis.get(key) or 0)
        return cls(dict(places), counters, frozenset(lasting))

    def held(self, jid: str) -> bool:
        """Does a private list hold this job?"""
        return any("|" in key for key in self.places.get(jid, ()))


def _enter(places: dict[str, list[str]], name: str, payloads: Iterable[bytes]) -> None:
    for payload in payloads:
        places[jid_of(payload)].append(name)


def needs_rescue(redis: redis_py.Redis) -> bool:
    """Is there anything that a worker has to bring back or to run? Reads no list."""
    return bool(redis.exists("schedule", "retry")) or any(True for _ in redis.scan_iter("queue:*", count=1000))


def complaints(snapshot: Snapshot, ledger: Ledger, acknowledged: Collection[str]) -> list[str]:
    """What is wrong at any moment at which nothing runs: a job lost or doubled, a counter below zero."""
    found = [f"{jid} is held {len(keys)} times: {keys}" for jid, keys in snapshot.places.items() if len(keys) > 1]
    done = ledger.jids("end") | ledger.jids("drop")
    found += [
        f"{jid} is lost: {ledger.times(jid)}"
        for jid in acknowledged
        if jid not in snapshot.places | dict.fromkeys(done)
    ]
    found += [f"{name} is {number}" for name, number in snapshot.counters.items() if number < 0]
    return found


def final_complaints(snapshot: Snapshot, ledger: Ledger, acknowledged: Collection[str]) -> list[str]:
    """What is wrong when everything has been recovered and run: besides, nothing waits, nothing stays for ever."""
    found = complaints(snapshot, ledger, acknowledged)
    waiting = {jid: keys for jid, keys in snapshot.places.items() if keys != ["dead"]}
    found += [f"{jid} still stands in {keys}" for jid, keys in waiting.items()]
    done = ledger.jids("end") | ledger.jids("drop")
    found += [f"{jid} is dead and done" for jid, keys in snapshot.places.items() if keys == ["dead"] and jid in done]
    found += [f"{name} has no time to live" for name in sorted(snapshot.lasting - LASTING)]
    return found


def death_complaints(snapshot: Snapshot, ledger: Ledger, expected: int | None) -> list[str]:
    """Does the dead set hold so many jobs, and has each that is a job had its death handlers? None: nobody can say."""
    dead = [jid for jid, keys in snapshot.places.items() if keys == ["dead"]]
    if expected is None:
        return []
    found = [] if len(dead) == expected else [f"{len(dead)} jobs are dead, {expected} should be: {dead}"]
    told = ledger.jids("death")
    return found + [f"{jid} died untold" for jid in dead if jid not in told and not jid.startswith("raw-")]


def repeats(ledger: Ledger) -> Counter[str]:
    """For each job the starts of one attempt beyond its first."""
    found: Counter[str] = Counter()
    for (jid, _attempt), starts in ledger.starts().items():
        found[jid] += starts - 1
    return +found


def repeat_complaints(repeated: Counter[str], budget: int, explained: Collection[str] | None) -> list[str]:
    """Repeats beyond the budget, or of jobs that the fault did not hold unacknowledged (None: it may be any)."""
    found = []
    if repeated.total() > budget:
        found.append(f"{repeated.total()} repeats, at most {budget} are due: {dict(repeated)}")
    strange = [] if explained is None else sorted(set(repeated) - set(explained))
    return found + [f"{jid} ran again though it was not held when the fault came" for jid in strange]
