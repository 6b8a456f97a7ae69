"""Brings back the jobs of processes that died.

A private list names its owner. When the owner has no heartbeat and nobody touched the list for a while, its jobs go
back to the consuming end of their queue, in slices, each slice with the proof of death in the same script
(docs/spec/reliability.md §5).
"""

from __future__ import annotations

import logging
import os
import re
import threading
from dataclasses import dataclass

from .. import keys
from ..clock import monotonic
from ..component import Periodic
from ..config import Config
from ..errors import RedisRefused, RedisUnavailable
from ..storage import orphans, processes
from . import identity

log = logging.getLogger("wurk")

MAX_REMEMBERED = 10_000  # lists judged by our own clock; forgetting them only delays
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Owner:
    """Who a private list belongs to. `nonce` is empty for the older key shape."""

    queue: str
    host: str
    pid: int
    nonce: str

    @property
    def identity(self) -> str:
        """Its name in the process set; only host and pid for the older shape."""
        return f"{self.host}:{self.pid}:{self.nonce}" if self.nonce else f"{self.host}:{self.pid}"


def read_owner(key: str, queue_name: str) -> Owner | None:
    """The owner of a private list of a known queue; None when the key has another shape.

    `queue:<q>|<host>|<pid>|<nonce>|<idx>`, or without the nonce. Exactly so many segments: a queue named `q|x` must
    not have its lists taken for those of `q`.
    """
    prefix = keys.queue(queue_name) + "|"
    if not key.startswith(prefix):
        return None
    return _read_tail(queue_name, key[len(prefix) :].split("|"))


def read_any_owner(key: str) -> Owner | None:
    """The owner of a private list of any queue: the tail is read from the right, the longer shape first."""
    segments = key.removeprefix(keys.QUEUE_PREFIX).split("|") if key.startswith(keys.QUEUE_PREFIX) else []
    for width in (4, 3):
        queue_name = "|".join(segments[:-width])
        owner = _read_tail(queue_name, segments[-width:]) if queue_name else None
        if owner is not None:
            return owner
    return None


def _read_tail(queue_name: str, tail: list[str]) -> Owner | None:
    if len(tail) == 4 and _NUMBER.fullmatch(tail[1]) and _NUMBER.fullmatch(tail[3]):
        return Owner(queue_name, tail[0], int(tail[1]), tail[2])
    if len(tail) == 3 and _NUMBER.fullmatch(tail[1]) and _NUMBER.fullmatch(tail[2]):
        return Owner(queue_name, tail[0], int(tail[1]), "")
    return None


class Reaper:
    """A Component: one sweep in the background at start, then one every `reaper_interval`, shared by the fleet."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._redis_grace_s = config.options.reaper_grace
        self._first_judged: dict[str, float] = {}  # by our own clock, where the server cannot tell idle times
        self._server_tells_idle = True
        self._boot: threading.Thread | None = None
        self._loop = Periodic("reaper", self._tick, lambda: config.options.reaper_interval, config.report)

    def start(self) -> None:
        self._loop.start()
        if self._boot is None or not self._boot.is_alive():
            self._boot = threading.Thread(target=self._boot_sweep, name="wurk-reaper-boot", daemon=True)
            self._boot.start()

    def quiet(self) -> None:
        """Go on: a quiet process can still help the fleet."""

    def stop(self) -> None:
        """End the loop; a sweep that is under way ends at its next step and is not waited for beyond the timeout."""
        self._loop.stop()

    def sweep(self) -> int:
        """Look at the private lists of the queues that this process serves; returns how many jobs came back."""
        owners = processes.live_owners(self._config.redis)
        moved = 0
        for queue_name in self._config.queue_names():
            for key in orphans.private_lists(self._config.redis, queue_name):
                if self._loop.stopping:
                    return moved
                owner = read_owner(key, queue_name)
                if owner is not None and self._is_orphaned(key, owner, owners):
                    moved += self._drain(key, owner)
        return moved

    def _tick(self) -> int:
        options = self._config.options
        names = self._config.queue_names()
        if not orphans.take_sweep_lock(self._config.redis, names, options.reaper_interval):
            return 0
        return self.sweep()

    def _boot_sweep(self) -> None:
        try:
            self.sweep()
        except Exception as error:  # the edge of a thread; the next sweep comes
            self._config.report(error, "reaper")

    # --- the verdict ----------------------------------------------------------------------------------------------

    def _is_orphaned(self, key: str, owner: Owner, owners: frozenset[str]) -> bool:
        if self._is_of_our_tree(owner):
            return not _pid_exists(owner.pid)
        if owner.identity in owners or self._touched_lately(key):
            return False
        # The snapshot is as old as the scan: look again right before.
        if owner.nonce:
            return not processes.is_alive(self._config.redis, owner.identity)
        return owner.identity not in processes.live_owners(self._config.redis)

    def _is_of_our_tree(self, owner: Owner) -> bool:
        return owner.nonce == identity.NONCE and owner.host == identity.host()

    def _touched_lately(self, key: str) -> bool:
        if self._redis_grace_s <= 0:
            return False
        if self._server_tells_idle:
            try:
                idle_s = orphans.idle_seconds(self._config.redis, key)
                return idle_s is None or idle_s < self._redis_grace_s
            except RedisRefused as refusal:
                self._server_tells_idle = False
                log.warning("the server does not tell idle times (%s); dead processes are judged by our clock", refusal)
        return self._seen_lately(key)

    def _seen_lately(self, key: str) -> bool:
        """By our own clock: a list must look orphaned for the whole grace, over several sweeps."""
        first = self._first_judged.get(key)
        if first is None:
            if len(self._first_judged) >= MAX_REMEMBERED:
                self._first_judged.clear()
            self._first_judged[key] = monotonic()
            return True
        if monotonic() - first < self._redis_grace_s:
            return True
        del self._first_judged[key]
        return False

    def _drain(self, key: str, owner: Owner) -> int:
        proof = owner.identity if owner.nonce and not self._is_of_our_tree(owner) else None
        moved = 0
        try:
            while not self._loop.stopping and (payloads := orphans.newest(self._config.redis, key)):
                count = orphans.drain(self._config.redis, key, owner.queue, proof, payloads)
                if count < 0:
                    break
                moved += count
        except (RedisUnavailable, RedisRefused) as error:
            self._config.report(error, f"bringing back the jobs of {owner.identity}")
        if moved:
            log.warning("%d jobs of %s, which is gone, are back on the queue %s", moved, owner.identity, owner.queue)
        return moved


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
