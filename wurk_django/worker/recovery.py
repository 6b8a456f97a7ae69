"""Brings the jobs of one private list back to their queue, and buries those that kill their process each time.

docs/spec/reliability.md §5.6, 6. A job is counted in the script that moves it, so a crash at any step leaves it in one
place with its count. Every acknowledgement, retry and death deletes the count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import keys, wire
from ..config import Config, Pill
from ..connection import Redis
from ..errors import MalformedPayload, Poisoned, RedisRefused, RedisUnavailable, is_outage
from ..storage import orphans
from ..storage.orphans import Fate
from .owners import Owner

log = logging.getLogger("wurk")

MAX_JID = 200  # bytes of a jid that gets a counter


class Recovery:
    """Drains lists whose owner has been judged dead. `stopping` is asked between two slices.

    Without `redis` it uses the configuration's pool, whichever that is at the time.
    """

    def __init__(
        self, config: Config, redis: Redis | None = None, *, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._config = config
        self._given = redis
        self._stopping = stopping

    @property
    def _redis(self) -> Redis:
        return self._given or self._config.redis

    def bring_back(self, key: str, owner: Owner, *, bury: bool = True) -> int:
        """Move the jobs of a list to the consuming end of their queue; returns how many. Errors are reported.

        Without `bury` poison stays in the list, for a sweep, and an outage is raised.
        """
        moved = 0
        try:
            for count in self._slices(key, owner, bury):
                moved += count
        except (RedisUnavailable, RedisRefused) as error:
            if not bury and is_outage(error):
                raise  # the parent of a dead child asks again
            self._config.report(error, f"bringing back the jobs of {owner.identity}")
        if moved:
            log.warning("%d jobs of %s, which is gone, are back on the queue %s", moved, owner.identity, owner.queue)
        return moved

    def _slices(self, key: str, owner: Owner, bury: bool) -> Iterator[int]:
        """Drains slice by slice; tells how many jobs each brought back."""
        limit = self._config.options.poison_limit
        proof = _proof(owner)
        left = 0
        while not self._stopping():
            payloads = orphans.newest(self._redis, key, left)
            counters = [_counter(payload) for payload in payloads]
            fates = orphans.drain(self._redis, key, owner.queue, proof, payloads, counters, limit)
            if not fates:  # the list is empty, or the owner is alive after all
                return
            found = list(zip(payloads, fates, strict=True))
            back = [payload for payload, fate in found if fate is Fate.MOVED]
            yield len(back)
            self._tell_recovered(back)
            for payload in (payload for payload, fate in found if fate is Fate.POISON):
                left += not (bury and self._bury(key, owner, payload))

    def _tell_recovered(self, payloads: Sequence[bytes]) -> None:
        if not payloads:
            return
        self._config.count("jobs.recovered.fetch", len(payloads))
        if self._config.recovery_callbacks:
            for raw in payloads:
                self._call(self._config.recovery_callbacks, _job(raw), None)

    def _bury(self, key: str, owner: Owner, raw: bytes) -> bool:
        """Returns whether the job has left the list; its death handlers run before, and again if this fails."""
        job = _job(raw)
        count = self._config.options.poison_limit + 1
        error = Poisoned(f"its process died {count} times within three days while it ran or waited to run")
        named = f"{wire.shown(job.get('class'))} {wire.shown(job.get('jid'))}"
        log.error("%s has taken its process with it %d times; it is buried", named, count)
        self._call(self._config.death_handlers, job, error)
        keep = job.get("dead") is not False
        gone, score = orphans.bury_poison(
            self._redis, key, _proof(owner), _counter(raw), raw, self._config.options, keep=keep
        )
        if not gone:
            return False
        self._config.count("jobs.poison")
        pill = Pill(str(job.get("jid")), str(job.get("class")), count, owner.queue, raw, score)
        self._call(self._config.recovery_callbacks, job, pill)
        known = {"jid": pill.jid, "klass": pill.klass, "count": pill.count, "queue": pill.queue}
        self._call(self._config.poison_callbacks, known)
        return True

    def _call(self, callbacks: Sequence[Callable[..., object]], *arguments: Any) -> None:
        for callback in callbacks:
            try:
                callback(*arguments)
            except Exception as failed:  # a broken callback must neither stop the others nor keep the job here
                self._config.report(failed, "a callback of the reaper")


def _proof(owner: Owner) -> str | None:
    """Whose heartbeat a script must not find; None when the death is proven otherwise."""
    return owner.identity if owner.nonce and not owner.is_of_our_tree else None


def _job(raw: bytes) -> dict[str, Any]:
    """The payload, or as much of one as a callback can be given."""
    try:
        payload = wire.decode(raw)
    except MalformedPayload:
        return {}
    return payload if isinstance(payload, dict) else {}


def _counter(raw: bytes) -> str:
    """The key that counts how often this job was brought back; empty when it has no name to count by."""
    jid = _job(raw).get("jid")
    if not isinstance(jid, str) or not 0 < len(jid) <= MAX_JID:
        return ""
    try:
        jid.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell
        return ""
    return keys.recovered(jid)
