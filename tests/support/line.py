"""One connection through the proxy, and one command on it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.resp import ReplyScanner, parse_command

if TYPE_CHECKING:
    from tests.support.proxy import Proxy, Rule

BLOCKING = frozenset({b"BLPOP", b"BRPOP", b"BLMOVE", b"BRPOPLPUSH", b"BLMPOP", b"BZPOPMIN", b"BZPOPMAX", b"BZMPOP"})
BLOCKING |= {b"XREAD", b"XREADGROUP", b"WAIT", b"WAITAOF"}
STREAMING = frozenset({b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR", b"SYNC", b"PSYNC"})
CHUNK = 1 << 16
POLL_S = 0.05  # how soon a held or hanging connection notices that the proxy was closed


class Command(tuple[bytes, ...]):
    """The arguments of one request; the first, its name, in upper case."""

    connection: int  # counts the connections of the proxy from 1
    round_trip: int  # shared by the commands of one pipeline

    @property
    def name(self) -> str:
        return self[0].decode()


class Gone(Exception):
    """This connection is over."""


class Line:
    """One client's connection: its own thread, its own connection to Redis."""

    def __init__(self, proxy: Proxy, client: socket.socket, number: int) -> None:
        self.proxy = proxy
        self.number = number
        self.client = client
        self.server: socket.socket | None = None
        self.client_gone = False
        self.broken = False
        self.thread = threading.Thread(target=self._run, name=f"proxy-{number}", daemon=True)
        self._requests = bytearray()
        self._replies = ReplyScanner()
        self._outbox = bytearray()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wake(self) -> None:
        for sock in (self.client, self.server):
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        # Lingering zero turns the close, which the line's own thread does once woken, into an RST.
        self.broken = True
        for sock in (self.client, self.server):
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.shutdown(socket.SHUT_RD)

    def _run(self) -> None:
        try:
            self.server = socket.create_connection(self.proxy.upstream, timeout=5)
            self.server.settimeout(None)
            self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                self._handle(*self._next_command())
        except (Gone, OSError, ValueError):
            pass  # the line ends; its clients see a closed connection
        finally:
            self.proxy.forget(self)
            if not self.broken:
                self._drain_client()
                self.wake()
            self.client.close()
            if self.server is not None:
                self.server.close()

    def _drain_client(self) -> None:
        # Bytes left unread would turn the closing into a reset, which the caller sees as a different fault.
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_WR)
            while not self.client_gone and _readable([self.client], 0):
                self._read_client()

    def _next_command(self) -> tuple[Command, bytes, bool]:
        """Wait for a request: its arguments, its bytes, and whether it opens a new round trip."""
        fresh = not self._requests
        while True:
            parsed = parse_command(self._requests)
            if parsed is not None:
                args, end = parsed
                raw = bytes(self._requests[:end])
                del self._requests[:end]
                if args:
                    command = Command([args[0].upper(), *args[1:]])
                    command.connection = self.number
                    return command, raw, fresh
            else:
                if self.client_gone:
                    raise Gone
                self._read_client()
            if self.broken:
                raise Gone

    def _read_client(self) -> None:
        data = self.client.recv(CHUNK)
        if data:
            self._requests += data
        else:
            self.client_gone = True

    def _handle(self, command: Command, raw: bytes, fresh: bool) -> None:
        rule = self.proxy.rule_for(command, new_round_trip=fresh)
        exchange = Exchange(self, command, raw, fresh, rule)
        if command[0] in STREAMING and rule is None:
            self._relay(raw)
        try:
            if rule is None:
                exchange.reply(exchange.forward())
            else:
                rule.action(exchange)
        finally:
            if rule is not None:
                rule.fired.set()

    def _relay(self, raw: bytes) -> None:
        """From here on replies answer no request: pass bytes both ways until one side ends."""
        assert self.server is not None
        self.server.sendall(raw + bytes(self._requests))
        while True:
            for sock in _readable([self.client, self.server]):
                data = sock.recv(CHUNK)
                if not data:
                    raise Gone
                (self.server if sock is self.client else self.client).sendall(data)

    # -- what an exchange is made of

    def send_upstream(self, raw: bytes, *, fresh: bool) -> None:
        assert self.server is not None
        if fresh:
            time.sleep(self.proxy.travel_time_s())
        self._pass("request")
        self.server.sendall(raw)

    def read_reply(self, command: Command) -> bytes:
        assert self.server is not None
        while (reply := self._replies.take()) is None:
            watched = [self.server] if self.client_gone else [self.server, self.client]
            ready = _readable(watched)
            if self.client in ready:
                self._read_client()
                if self.client_gone and command[0] in BLOCKING:
                    raise Gone  # Redis must see it too, else it would hand a job to nobody
            if self.server in ready:
                data = self.server.recv(CHUNK)
                if not data:
                    raise Gone
                self._replies.feed(data)
        return reply

    def send_client(self, data: bytes) -> None:
        self._outbox += data
        # Looking once more before the answer leaves tells a pipeline in several packets from a new round trip.
        if not self.client_gone and not self._requests and _readable([self.client], 0):
            self._read_client()
        if parse_command(self._requests) is None:
            self.flush()

    def flush(self) -> None:
        if not self._outbox:
            return
        data = bytes(self._outbox)
        self._outbox.clear()
        time.sleep(self.proxy.travel_time_s())
        self._pass("reply")
        # What the client of a broken line sent ahead still reaches Redis, as it would over a real network.
        with contextlib.suppress(OSError):
            self.client.sendall(data)

    def hang(self) -> None:
        while not self.proxy.closed.is_set() and not self.client_gone:
            if _readable([self.client], POLL_S):
                self._read_client()
        raise Gone

    def _pass(self, direction: str) -> None:
        gate = self.proxy.gate(direction)
        while not gate.wait(POLL_S) and not self.broken:
            pass
        if self.broken or self.proxy.closed.is_set():
            raise Gone


@dataclass
class Exchange:
    """One command on its way; what an action is given."""

    line: Line
    command: Command
    raw: bytes
    fresh: bool = True
    rule: Rule | None = None

    def forward(self) -> bytes:
        """Send the request to Redis and return its reply, as bytes."""
        self.line.send_upstream(self.raw, fresh=self.fresh)
        return self.line.read_reply(self.command)

    def reply(self, data: bytes) -> None:
        self.line.send_client(data)

    def cut(self, *, reset: bool = False) -> None:
        """Close both sides now. Replies of earlier commands in the same pipeline are delivered first."""
        self.line.flush()
        if reset:
            self.line.reset()
        raise Gone

    def hang(self) -> None:
        """Say nothing more until the client gives up."""
        self.line.flush()
        if self.rule is not None:
            self.rule.fired.set()
        self.line.hang()


def _readable(socks: list[socket.socket], timeout_s: float | None = None) -> list[socket.socket]:
    """Those that have bytes, an end or an error to read. Not select(): it ends at descriptor 1023."""
    poller = select.poll()
    by_fd = {sock.fileno(): sock for sock in socks}
    for fd in by_fd:
        poller.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)]
