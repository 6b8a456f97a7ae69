"""Keeps the jobs of an outage, oldest first, and delivers them when Redis is back."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..client import Client
from ..clock import monotonic
from ..component import Periodic
from ..config import Config, Replication
from ..connection import Redis, RedisOptions
from ..errors import PushBufferFull, RedisRefused, RedisUnavailable
from ..wire import Payload

log = logging.getLogger("wurk")

#: What a process that ends has for delivering the rest.
LAST_DRAIN_S = 2.0

_buffers: weakref.WeakSet[PushBuffer] = weakref.WeakSet()


@dataclass(frozen=True, eq=False)
class Entry:
    """One job that waits for Redis, as it was when it was pushed, and where it must go."""

    payload: Payload
    options: RedisOptions


class PushBuffer:
    """The jobs of one configuration that wait for Redis. Shared by threads.

    Made by `install`. A thread delivers them and lives as long as jobs wait; the next push and the end of the process
    deliver too. A fork leaves the child an empty buffer: the parent owns what is in it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client = Client(config)
        self._capacity = config.options.reliable_push_buffer
        self._reset()
        _buffers.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, payloads: list[Payload], redis: Redis, replication: Replication) -> None:
        """Deliver what waits for this Redis, then these; when Redis is away, keep those that are not surely written.

        Raises RedisUnavailable for jobs that may not be kept, PushBufferFull when there is no room and nothing may be
        dropped, and whatever else `Client.write` raises.
        """
        written: list[Payload] = []
        try:
            self.drain(redis.options)
            self._client.write(payloads, redis, replication, written)
        except RedisUnavailable as error:
            known = {id(payload) for payload in written}
            missing = [payload for payload in payloads if id(payload) not in known]
            self._keep(missing, redis.options, error, certain=replication.replicas > 0)

    def drain(self, options: RedisOptions, *, wait_s: float = 0.0, until: float | None = None) -> int:
        """Deliver what waits for this Redis, oldest first; returns how many. Nothing while another thread is at it.

        Stops at the first error, keeps that job in its place, and raises. A wrong type at one queue's key stops the
        jobs of that queue only. `until` is a monotonic time after which no further job is begun. Dials once, on a
        connection of its own: pools come and go meanwhile, and whoever pushes in an outage should not wait for long.
        """
        if not self._entries or not self._draining.acquire(blocking=wait_s > 0, timeout=wait_s or -1):
            return 0
        lock = self._draining
        pool = Redis(options, 1, "push buffer", self._config.on_redis_retry, attempts=1)
        stuck: set[str] = set()
        delivered = 0
        try:
            while until is None or monotonic() < until:
                entry = self._oldest(options, stuck)
                if entry is None:
                    break
                if self._deliver(entry, pool):
                    delivered += 1
                else:
                    stuck.add(entry.payload["queue"])
        finally:
            pool.close()
            lock.release()
        return delivered

    def drain_all(self) -> None:
        """Deliver everything to every Redis. Raises the first refusal after all had their turn."""
        refusals: list[RedisRefused] = []
        for options in self._origins():
            try:
                self.drain(options)
            except RedisUnavailable as error:
                log.debug("push buffer: %s is still away: %s", options.describe(), error)
            except RedisRefused as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def close(self) -> None:
        """Deliver what can be delivered within LAST_DRAIN_S; what is left then is named in the log and lost.

        Called when a process ends.
        """
        if not self._entries:
            return
        deadline = monotonic() + LAST_DRAIN_S
        for options in self._origins():
            try:
                self.drain(options, wait_s=max(deadline - monotonic(), 0.001), until=deadline)
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("push buffer: %s", error)
        lost = [entry.payload["jid"] for entry in list(self._entries)]
        if lost:
            log.error("push buffer: the process ends and %d jobs are lost: %s", len(lost), " ".join(lost))

    # --- steps ---------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._entries: deque[Entry] = deque()
        self._mutex = threading.Lock()  # around the deque
        self._draining = threading.Lock()  # held by the one thread that delivers
        self._drainer: Periodic | None = None
        self._under_way: Entry | None = None  # is being delivered, so it cannot be dropped
        self._dropping = False  # jobs were dropped since the last delivery

    def _keep(
        self, payloads: Sequence[Payload], options: RedisOptions, error: RedisUnavailable, *, certain: bool
    ) -> None:
        """Keep what may be kept. `certain`: the caller waits for replicas, so he must know that nothing is there."""
        plain = [payload for payload in payloads if not (certain or _is_tied(payload))]
        tied = [payload for payload in payloads if certain or _is_tied(payload)]
        entries = [Entry(self._client.fixed(payload), options) for payload in plain]
        if self._config.options.reliable_push_overflow == "raise":
            with self._mutex:
                kept = entries[: max(self._capacity - len(self._entries), 0)]
                self._entries.extend(kept)
            self._start_drainer()
            if len(kept) < len(plain):
                missed = plain[len(kept) :] + tied
                raise PushBufferFull(
                    f"{error}; the push buffer has no room for {len(missed)} jobs (RELIABLE_PUSH_BUFFER is"
                    f" {self._capacity}): they were not pushed",
                    missed,
                ) from error
        else:
            self._keep_newest(entries)
            self._start_drainer()
        if tied:
            raise error

    def _keep_newest(self, entries: Sequence[Entry]) -> None:
        dropped = 0
        with self._mutex:
            self._entries.extend(entries)
            while len(self._entries) > self._capacity:
                del self._entries[1 if self._entries[0] is self._under_way else 0]
                dropped += 1
            first, self._dropping = dropped > 0 and not self._dropping, self._dropping or dropped > 0
        if first:
            log.error("push buffer: full with %d jobs, the oldest are dropped from now on", self._capacity)
        if dropped:
            self._config.count("jobs.dropped.push", dropped)

    def _oldest(self, options: RedisOptions, stuck: set[str]) -> Entry | None:
        with self._mutex:
            for entry in self._entries:
                if entry.options == options and entry.payload["queue"] not in stuck:
                    return entry
        return None

    def _deliver(self, entry: Entry, redis: Redis) -> bool:
        """Send one job, which stays in the buffer until Redis has it. False: its queue's key is of a wrong type."""
        self._under_way = entry
        try:
            self._client.write([entry.payload], redis)
            with self._mutex:
                self._entries.remove(entry)
        except RedisRefused as refusal:
            if refusal.code != "WRONGTYPE":
                raise
            self._config.report(refusal, {"context": "push buffer", "job": entry.payload})
            return False
        finally:
            self._under_way = None
        self._dropping = False
        self._config.count("jobs.recovered.push")
        return True

    def _origins(self) -> list[RedisOptions]:
        """Every Redis that jobs wait for, the oldest job's first."""
        found: list[RedisOptions] = []
        for entry in list(self._entries):
            if entry.options not in found:
                found.append(entry.options)
        return found

    def _start_drainer(self) -> None:
        interval_s = self._config.options.reliable_push_drain_interval
        if not interval_s or not self._entries:
            return
        with self._mutex:
            if self._drainer is None:
                drainer = Periodic("push-buffer", self._tick, lambda: interval_s, self._config.report)
                try:
                    drainer.start()
                except RuntimeError as error:  # no more threads are to be had, or the process ends: the jobs are kept
                    log.warning("push buffer: no thread of its own: %s", error)
                else:
                    self._drainer = drainer

    def _tick(self) -> None:
        try:
            self.drain_all()
        finally:
            with self._mutex:
                if self._drainer is not None and not self._entries:
                    self._drainer.stop()
                    self._drainer = None


def _is_tied(payload: Payload) -> bool:
    """Its push moves counters of a batch or takes a lock: only Redis can say how that went."""
    return bool(payload.get("bid") or payload.get("unique_for"))


def close_all() -> None:
    """Deliver the rest of every buffer of this process: jobs in a worker push by the default configuration."""
    for buffer in list(_buffers):
        buffer.close()


def install(config: Config) -> PushBuffer:
    """Make the pushes of a configuration survive an outage. A second call changes nothing."""
    if not isinstance(config.outage, PushBuffer):
        config.outage = PushBuffer(config)
        config.hooks.on("exit", close_all)  # the children of a worker end without atexit
    return config.outage


def _after_fork_in_child() -> None:
    for buffer in list(_buffers):
        buffer._reset()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(close_all)
