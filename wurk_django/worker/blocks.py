"""Blocking claims: one BLMOVE for each queue, on connections of their own, watched by one selector.

Owned by a dispatcher, used by the thread that leads it. The replies are read from the socket here and not by
redis-py, because a reply whose header announces more than the size cap must not be read at all, and because several
connections are waited on at once (docs/spec/reliability.md §3.2).
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.connection import Connection

from ..clock import monotonic
from ..connection import READ_TIMEOUT_S, Redis, Session, is_usable, socket_of
from ..errors import MalformedPayload, RedisRefused, RedisUnavailable
from ..storage import queues
from ..storage.queues import Claimed, Lane
from ..wire import MAX_CLAIM_BYTES

CHUNK = 65_536
OVERTAKEN_PAUSE_S = 0.001  # for a claim to arrive that the request to end it has overtaken; doubled each time


class Block:
    """One connection that waits for a job of one queue."""

    def __init__(self, lane: Lane, connection: Connection, block_s: float) -> None:
        self.lane = lane
        self.connection = connection
        self.socket = socket_of(connection)
        self.number = queues.connection_id(Session(connection))
        self.armed = False
        self.deadline = 0.0
        self._command = queues.blocking_claim(lane, block_s)
        self._block_s = block_s

    def arm(self) -> None:
        """Send the claim. Raises RedisUnavailable."""
        try:
            self.socket.sendall(self._command)
        except OSError as error:
            raise RedisUnavailable(f"Redis went away while a claim was sent: {error}") from error
        self.armed = True
        self.deadline = monotonic() + self._block_s + READ_TIMEOUT_S

    def read(self) -> bytes | None:
        """Read the reply: a payload, or None when the wait ended without one.

        Raises RedisRefused, RedisUnavailable (a job may have been moved), MalformedPayload for one that is too large:
        the connection must be dropped after the last two.
        """
        data = self._more()
        while b"\r\n" not in data:
            data += self._more()
        header, _, rest = data.partition(b"\r\n")
        self.armed = False
        if header[:1] == b"-":
            message = header[1:].decode("utf-8", "replace")
            raise RedisRefused(message, message.partition(" ")[0])
        size = int(header[1:])
        if size < 0:
            return None
        if size > MAX_CLAIM_BYTES:
            raise MalformedPayload(f"a job of {size:,} bytes on {self.lane.public}")
        chunks = [rest]
        missing = size + 2 - len(rest)
        while missing > 0:
            chunks.append(self._more())
            missing -= len(chunks[-1])
        return b"".join(chunks)[:size]

    def _more(self) -> bytes:
        try:
            chunk: bytes = self.socket.recv(CHUNK)
        except OSError as error:
            raise RedisUnavailable(f"Redis did not answer a claim: {error}") from error
        if not chunk:
            raise RedisUnavailable("Redis closed the connection of a claim")
        return chunk


class Blocks:
    """The open blocking claims of a dispatcher. All methods but `wake` belong to the leading thread."""

    def __init__(self, redis: Redis, block_s: float) -> None:
        self._redis = redis
        self._block_s = block_s
        self._blocks: dict[str, Block] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)

    @property
    def open(self) -> bool:
        """Is a wait open?"""
        return any(block.armed for block in self._blocks.values())

    def wake(self) -> None:
        """End a wait from another thread."""
        with suppress(OSError):  # full: it wakes anyway; closed: nobody waits any more
            os.write(self._wake_write, b"!")

    def arm(self, lanes: Sequence[Lane]) -> None:
        """Wait on exactly these lanes: those that are open already stay so. Raises RedisUnavailable."""
        for lane in lanes:
            block = self._blocks.get(lane.public)
            if block is not None and not block.armed and not is_usable(block.connection):
                self._drop(block)  # closed by the server while nobody waited
                block = None
            if block is None:
                block = Block(lane, self._redis.options.dial(), self._block_s)
                self._blocks[lane.public] = block
                self._selector.register(block.socket, selectors.EVENT_READ, block)
            if not block.armed:
                block.arm()

    def stray(self, lanes: Sequence[Lane]) -> bool:
        """Is a wait open on a queue that is not among these, because it was paused?"""
        wanted = {lane.public for lane in lanes}
        return any(block.armed and name not in wanted for name, block in self._blocks.items())

    def wait(self, timeout_s: float) -> list[Claimed]:
        """Wait until a claim answers, `wake` is called or the time is over; the jobs that came, oldest first.

        Raises the first error of a claim after the other replies were taken; the jobs of those are in `error.claimed`.
        """
        now = monotonic()
        nearest = min((block.deadline for block in self._blocks.values() if block.armed), default=now + timeout_s)
        events = self._selector.select(max(min(timeout_s, nearest - now), 0))
        ready = [key.data for key, _ in events if key.data is not None]
        if len(ready) < len(events):
            with suppress(BlockingIOError):
                os.read(self._wake_read, CHUNK)
        claimed, failure = self._read(ready)
        late = monotonic()
        for block in [block for block in self._blocks.values() if block.armed and block.deadline < late]:
            failure = RedisUnavailable("Redis did not answer a claim in time")
            self._drop(block)
        if failure is not None:
            raise ClaimFailed(failure, claimed)
        return claimed

    def end(self) -> list[Claimed]:
        """End all waits and read what they answer. Jobs that came in between are returned, oldest first.

        Raises ClaimFailed like `wait`.
        """
        armed = [block for block in self._blocks.values() if block.armed]
        if not armed:
            return []
        try:
            self._unblock(armed)
        except (RedisUnavailable, RedisRefused) as error:
            self.close()
            raise ClaimFailed(error, []) from error
        claimed, failure = self._read(armed)
        if failure is not None:
            raise ClaimFailed(failure, claimed)
        return claimed

    def _unblock(self, blocks: Sequence[Block]) -> None:
        """Have every wait answered. The request to end one travels on another connection and may overtake the claim
        itself: then it ended nothing, and is sent again."""
        silent, pause_s = list(blocks), OVERTAKEN_PAUSE_S
        deadline = monotonic() + READ_TIMEOUT_S  # reading tells what is wrong with one that stays silent
        while silent and monotonic() < deadline:
            ended = queues.unblock([block.number for block in silent], self._redis)
            silent = [b for b, done in zip(silent, ended, strict=True) if not done and is_usable(b.connection)]
            if silent:
                time.sleep(pause_s)
                pause_s *= 2

    def close(self) -> None:
        """Drop every connection. A job that a claim moved unread is found by reconciling."""
        for block in list(self._blocks.values()):
            self._drop(block)

    def destroy(self) -> None:
        """Close everything, the selector included."""
        self.close()
        self._selector.close()
        ends = self._wake_read, self._wake_write
        self._wake_read = self._wake_write = -1  # a later `wake` must not write to whoever gets these numbers next
        for end in ends:
            if end >= 0:
                os.close(end)

    def _read(self, blocks: Sequence[Block]) -> tuple[list[Claimed], Exception | None]:
        claimed: list[Claimed] = []
        failure: Exception | None = None
        for block in blocks:
            if not block.armed:  # nothing was asked, so the server has closed the connection
                self._drop(block)
                continue
            try:
                payload = block.read()
            except RedisRefused as refusal:
                failure = refusal
                if refusal.code not in ("OOM", "WRONGTYPE"):
                    self._drop(block)
            except (RedisUnavailable, MalformedPayload, ValueError) as error:
                failure = error
                self._drop(block)
            else:
                if payload is not None:
                    claimed.append(Claimed(block.lane, payload))
        return claimed, failure

    def _drop(self, block: Block) -> None:
        self._blocks.pop(block.lane.public, None)
        with suppress(KeyError, ValueError, OSError):
            self._selector.unregister(block.socket)
        block.connection.disconnect()


class ClaimFailed(Exception):
    """A blocking claim failed with `error`; `claimed` are the jobs that other claims brought at the same time."""

    def __init__(self, error: Exception, claimed: list[Claimed]) -> None:
        super().__init__(str(error))
        self.error: Any = error
        self.claimed = claimed
