"""The producing side: from a dict to Redis.

`normalise → client middleware → strict check → raw push`. Inside an open transaction the raw push waits for the
commit (the Django face sets `Config.defer`); the jid is fixed and the arguments are checked at once. A push whose
answer was lost is never sent again. docs/spec/core.md §2.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

from . import clock, wire
from . import config as configuration
from .config import ALONE, Config, Replication
from .connection import Redis, RedisOptions
from .errors import InvalidJob, NotReplicated
from .storage import queues, sorted_sets
from .wire import Payload

log = logging.getLogger("wurk")

BATCH_SIZE: Final = 1000  # jobs a round trip
SCHEDULED_BATCH_SIZE: Final = 100  # with `at` or `spread_interval`
MIN_SPREAD_S: Final = 5
ABSOLUTE_FROM_S: Final = 1_000_000_000  # a number below this is a span, from here on a time

_via: ContextVar[Redis | None] = ContextVar("wurk_via", default=None)


class Client:
    """Pushes jobs. Cheap to make, holds no connection of its own; safe in threads.

    `redis` pins every push of this client to one Redis. Without it: the `via` block, the job class's `pool` option,
    the configuration's pool, in that order.
    """

    def __init__(self, config: Config | None = None, redis: Redis | None = None) -> None:
        self.config = config or configuration.default()
        self.redis = redis

    def push(self, item: Mapping[str, Any]) -> str | None:
        """Enqueue one job, or schedule it when it has `at` (epoch seconds). Returns its jid.

        `item` has at least `class` (a Job class or a name) and `args` (a list); any other key goes into the payload.
        None: a client middleware stopped it. Raises InvalidJob (nothing was written), RedisRefused (likewise),
        RedisUnavailable (with a lost answer it may have been written), NotReplicated (it was written).
        """
        payload = self._normalized(item)
        redis = self._redis_for(item)
        pushed = self._prepared(item["class"], payload, redis)
        if not pushed:
            return None
        self._send([pushed], redis, item)
        jid: str = pushed["jid"]
        return jid

    def prepare(self, item: Mapping[str, Any]) -> Payload | None:
        """The payload that `push` would send, after client middleware and checks; None when middleware stopped it."""
        payload = self._normalized(item)
        return self._prepared(item["class"], payload, self._redis_for(item))

    def push_bulk(self, items: Mapping[str, Any]) -> list[str | None]:
        """Enqueue many jobs of one class: `items["args"]` is an iterable of argument lists.

        `at`: epoch seconds, or one for each job. `spread_interval`: seconds over which to spread them (at least 5).
        `batch_size`: jobs a round trip. Returns a jid or None (stopped by middleware) for each argument list.
        Raises as `push`; slices before the failing one are pushed.
        """
        wire.check_item(items)
        slices = _Slices(items)
        base = self._normalized({**slices.item, "args": []})
        redis = self._redis_for(items)
        jids: list[str | None] = []
        for batch in slices:
            payloads = [self._built(base, args, at, jid) for args, at, jid in batch]
            kept = self._kept(items["class"], payloads, redis)
            pushed = [payload for payload in kept if payload]
            if pushed:
                self._send(pushed, redis, items)
            jids.extend(payload["jid"] if payload else None for payload in kept)
        return jids

    @staticmethod
    @contextmanager
    def via(redis: Redis | Any) -> Iterator[None]:
        """Send the pushes of this block to another Redis: a `connection.Redis`, or a redis-py client to copy.

        Blocks nest; the inner one wins. Follows the thread or task.
        """
        if redis is None:
            raise InvalidJob("via() needs a Redis, got None")
        pool = redis if isinstance(redis, Redis) else Redis(RedisOptions.of_client(redis), name="via")
        token = _via.set(pool)
        try:
            yield
        finally:
            _via.reset(token)
            if pool is not redis:
                pool.close_idle(0)  # not spent: a push that waits for a commit still needs it

    def enqueue(self, job_class: Any, *args: Any) -> str | None:
        """Push one job with these arguments."""
        return self.push({"class": job_class, "args": list(args)})

    def enqueue_to(self, queue: str, job_class: Any, *args: Any) -> str | None:
        """Push one job to this queue."""
        return self.push({"queue": queue, "class": job_class, "args": list(args)})

    def enqueue_in(self, interval_s: float, job_class: Any, *args: Any) -> str | None:
        """Push one job that is due in `interval_s` seconds, or at that time; at once when that is not in the future."""
        return self.push({"class": job_class, "args": list(args), **_due_in(interval_s)})

    def enqueue_to_in(self, queue: str, interval_s: float, job_class: Any, *args: Any) -> str | None:
        """Push one job to this queue that is due in `interval_s` seconds."""
        return self.push({"queue": queue, "class": job_class, "args": list(args), **_due_in(interval_s)})

    # --- steps ---------------------------------------------------------------------------------------------------

    def _prepared(self, job_class: Any, payload: Payload, redis: Redis) -> Payload | None:
        kept = self._through_middleware(job_class, payload, redis)
        if kept:
            self._check(kept)
        return kept or None

    def _normalized(self, item: Mapping[str, Any]) -> Payload:
        wire.check_item(item)
        job_class = item["class"]
        payload: Payload = {**self._defaults(job_class, item.get("wrapped")), **item}
        queue = payload.get("queue")
        if not queue:
            raise InvalidJob(f"{_name(job_class)}: the job must include a valid queue name, got {queue!r}")
        queue = payload["queue"] = str(queue)
        if not wire.is_queue_name(queue):
            raise InvalidJob(
                f"{_name(job_class)}: {queue!r:.300} cannot be a queue name: no '|', no control characters,"
                f" at most {wire.MAX_QUEUE_NAME} characters"
            )
        for key in wire.CONTROL_KEYS.intersection(payload):
            del payload[key]
        payload["class"] = _name(job_class)
        wire.check_fields(payload)
        if isinstance(payload["args"], tuple):
            payload["args"] = list(payload["args"])
        if "wrapped" in payload and not isinstance(payload["wrapped"], str):
            payload["wrapped"] = _name(payload["wrapped"])
        if not payload.get("kwargs", True):
            del payload["kwargs"]
        if payload.get("retry_for"):
            payload["retry_for"] = int(payload["retry_for"])
        if not payload.get("jid"):
            payload["jid"] = os.urandom(12).hex()
        if "created_at" not in payload:
            payload["created_at"] = wire.stamp(self.config.options.wire_timestamps)
        return payload

    def _defaults(self, job_class: Any, wrapped: Any) -> dict[str, Any]:
        options: dict[str, Any]
        if isinstance(job_class, str):
            options = dict(self.config.options.default_job_options)
        elif _is_job(job_class):
            options = {**dict(self.config.options.default_job_options), **job_class.options}
        else:
            raise InvalidJob(f"class must be a Job class or its name, got {wire.shown(job_class)}")
        if _is_job(wrapped):
            options = {**options, **wrapped.options}
        return options

    def _redis_for(self, item: Mapping[str, Any]) -> Redis:
        job_class = item["class"]
        declared = None if isinstance(job_class, str) else job_class.options.get("pool")
        return self.redis or _via.get() or item.get("pool") or declared or self.config.redis

    def _through_middleware(self, job_class: Any, payload: Payload, redis: Redis) -> Payload | None:
        chain = self.config.client_middleware
        if not len(chain):
            return payload
        result: Payload | None = chain.invoke(lambda: payload, job_class, payload, payload["queue"], redis)
        return result

    def _check(self, payload: Payload) -> None:
        mode = self.config.options.on_complex_arguments
        if mode == "off":
            return
        try:
            wire.check_arguments(payload)
        except InvalidJob as refusal:
            if mode == "raise":
                raise
            log.warning("%s", refusal)

    def _built(self, base: Payload, args: object, at: float | None, jid: str) -> Payload:
        if type(args) is not list and type(args) is not tuple:
            raise InvalidJob(f"{base['class']}: bulk arguments must be lists, one for each job; got {wire.shown(args)}")
        payload = base.copy()
        payload["args"] = args if type(args) is list else list(args)
        payload["jid"] = jid
        if at is not None:
            payload["at"] = at
        return payload

    def _kept(self, job_class: Any, payloads: list[Payload], redis: Redis) -> list[Payload | None]:
        """Each payload through the chain by itself, checked innermost; None in the place of a stopped one."""
        chain = self.config.client_middleware
        if not len(chain):
            for payload in payloads:
                self._check(payload)
            return list(payloads)
        kept: list[Payload | None] = []
        for payload in payloads:

            def checked(payload: Payload = payload) -> Payload:
                self._check(payload)
                return payload

            kept.append(chain.invoke(checked, job_class, payload, payload["queue"], redis) or None)
        return kept

    def _send(self, payloads: list[Payload], redis: Redis, item: Mapping[str, Any]) -> None:
        defer = self.config.defer
        wanted = _steering(item, "on_commit")
        using = _steering(item, "using")
        replication = self._replication(item)
        if defer is None or not (self.config.options.enqueue_on_commit if wanted is None else wanted):
            self._raw_push(payloads, redis, replication)
        elif defer.is_open(using):
            fixed = [self.fixed(payload) for payload in payloads]
            defer.after_commit(lambda: self._raw_push(fixed, redis, replication), using)
        else:
            self._raw_push(payloads, redis, replication)

    def _replication(self, item: Mapping[str, Any]) -> Replication:
        options = self.config.options
        given = _steering(item, "wait_replicas")
        replicas = options.push_wait_replicas if given is None else given
        if not replicas:
            return ALONE
        if type(replicas) is not int or replicas < 0:
            raise InvalidJob(f"wait_replicas must be a whole number, 0 or more, got {wire.shown(replicas)}")
        return Replication(replicas, options.push_wait_timeout)

    def fixed(self, payload: Payload) -> Payload:
        """The payload as it is now. Refused here, where the caller can see it; what he changes later changes no job."""
        if "at" not in payload:
            payload = {**payload, "enqueued_at": wire.stamp(self.config.options.wire_timestamps)}
        return {**payload, **wire.decode(self._encoded(payload))}

    def _raw_push(self, payloads: list[Payload], redis: Redis, replication: Replication) -> None:
        if self.config.outage is None:
            self.write(payloads, redis, replication)
        else:
            self.config.outage.push(payloads, redis, replication)

    def write(
        self,
        payloads: list[Payload],
        redis: Redis,
        replication: Replication = ALONE,
        written: list[Payload] | None = None,
    ) -> None:
        """Send payloads in one round trip, all to queues or all to the schedule. Past middleware, checks and buffer.

        `written` learns which of them are in Redis for certain, also when this raises.
        """
        if "at" in payloads[0]:
            members = [(payload["at"], self._encoded(payload)) for payload in payloads]
            copies = sorted_sets.schedule(redis, members, replication)
            self._note(payloads, written)
        else:
            copies = self._write_to_queues(payloads, redis, replication, written)
        if copies < replication.replicas:
            jids = [payload["jid"] for payload in payloads]
            raise NotReplicated(
                f"Redis has {', '.join(jids[:3])}{', …' if len(jids) > 3 else ''}, but {copies} of"
                f" {replication.replicas} replicas confirmed within {replication.timeout_s} s: a failover now may lose"
                " it. Do not push it again, it would run twice; look at the replicas",
                jids,
            )

    def _write_to_queues(
        self, payloads: list[Payload], redis: Redis, replication: Replication, written: list[Payload] | None
    ) -> int:
        now = wire.stamp(self.config.options.wire_timestamps)
        by_queue: dict[str, list[bytes]] = {}
        for payload in payloads:
            payload["enqueued_at"] = now
            by_queue.setdefault(payload["queue"], []).append(self._encoded(payload))
        names: list[str] = []
        try:
            return queues.push(redis, by_queue, replication, names)
        finally:
            whole = len(names) == len(by_queue)
            self._note(payloads if whole else [item for item in payloads if item["queue"] in names], written)

    def _note(self, arrived: list[Payload], written: list[Payload] | None) -> None:
        if written is not None:
            written += arrived
        if self.config.counters and arrived:
            self.config.count("jobs.enqueued", len(arrived))

    def _encoded(self, payload: Payload) -> bytes:
        if "at" in payload:
            payload = {key: value for key, value in payload.items() if key not in ("at", "enqueued_at")}
        return wire.encode(payload, self.config.options.max_job_bytes)


class _Slices:
    """A bulk push cut into round trips: yields lists of (args, at or None, jid)."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.item = {key: value for key, value in items.items() if key not in ("at", "spread_interval", "jid")}
        name = _name(items.get("class"))
        given = items.get("args")
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InvalidJob(f"{name}: bulk args must be an iterable of argument lists, got {wire.shown(given)}")
        self._args: Iterable[Any] = given
        at = items.get("at")
        spread_s = items.get("spread_interval")
        if at is not None and spread_s is not None:
            raise InvalidJob(f"{name}: a bulk push takes `at` or `spread_interval`, not both")
        if isinstance(at, list | tuple) or items.get("jid"):
            self._args = list(self._args)
        if items.get("jid") and len(list(self._args)) != 1:
            raise InvalidJob(f"{name}: a jid can be given for a single job only")
        self._jid = items.get("jid")
        self._times = _bulk_times(name, at, spread_s, self._args)
        default = BATCH_SIZE if self._times is None else SCHEDULED_BATCH_SIZE
        self._size = int(items.get("batch_size") or default)
        if self._size < 1:
            raise InvalidJob(f"{name}: batch_size must be at least 1, got {self._size}")

    def __iter__(self) -> Iterator[list[tuple[Any, float | None, str]]]:
        rest = iter(self._args)
        while batch := list(islice(rest, self._size)):
            random_bytes = os.urandom(12 * len(batch)).hex()
            jids = [random_bytes[24 * i : 24 * i + 24] for i in range(len(batch))]
            if self._jid:
                jids = [self._jid]
            times = [None] * len(batch) if self._times is None else list(islice(self._times, len(batch)))
            yield list(zip(batch, times, jids, strict=True))


def _bulk_times(name: str, at: Any, spread_s: Any, args: Iterable[Any]) -> Iterator[float] | None:
    if spread_s is not None:
        if not wire.is_number(spread_s) or spread_s <= 0:
            raise InvalidJob(
                f"{name}: spread_interval must be a positive number of seconds, got {wire.shown(spread_s)}"
            )
        width = max(spread_s, MIN_SPREAD_S)
        return iter(lambda: clock.now_s() + random.random() * width, None)  # noqa: S311
    if at is None:
        return None
    if wire.is_number(at):
        return iter(lambda: at, None)
    if not isinstance(at, list | tuple) or not at or not all(wire.is_number(time) for time in at):
        raise InvalidJob(f"{name}: `at` must be epoch seconds, or a list with one for each job; got {wire.shown(at)}")
    if isinstance(args, list) and len(at) != len(args):
        raise InvalidJob(f"{name}: `at` has {len(at)} times for {len(args)} jobs")
    return iter(at)


def _steering(item: Mapping[str, Any], name: str) -> Any:
    """An option that steers the push: of this push, else of the class."""
    given = item.get(name)
    return item["class"].options.get(name) if given is None and _is_job(item["class"]) else given


def _due_in(interval_s: float) -> dict[str, float]:
    if not wire.is_number(interval_s):
        raise InvalidJob(f"an interval must be a number of seconds, got {wire.shown(interval_s)}")
    now = clock.now_s()
    at = now + interval_s if interval_s < ABSOLUTE_FROM_S else interval_s
    return {"at": at} if at > now else {}


def _is_job(candidate: object) -> bool:
    return isinstance(candidate, type) and hasattr(candidate, "wire_name")


def _name(job_class: Any) -> str:
    name = job_class if isinstance(job_class, str) else getattr(job_class, "wire_name", None)
    if not isinstance(name, str) or not name:
        raise InvalidJob(f"class must be a Job class or its name, got {wire.shown(job_class)}")
    return name
