"""A TCP proxy in front of Redis that breaks the line at one chosen command.

It reads every request and every reply, so that a fault hits command n, a command by name or a script by its sha:

    proxy.on(named("LPUSH"), LoseReply())                          # applied, but the caller never hears of it
    proxy.on(script(sha), Kill.before(lambda: worker.pid))         # the caller dies; the script never arrives
    proxy.on(anything, LoseRequest(), skip=4)                      # the fifth command
    proxy.on(named("BLMOVE"), Answer("READONLY replica"), times=None)

A predicate gets the `Command`; the first rule that matches and is not used up acts. The commands of one connection are
handled one after the other, pipelined ones too, so "before" and "after" mean what they say. Faults of the whole line
are `Proxy`'s own: `reset_all`, `black_hole`, `heal`, `latency`, `refuse`, `upstream`. The actions are in `faults.py`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.line import Command, Exchange, Line

Predicate = Callable[[Command], bool]
Action = Callable[[Exchange], None]


@dataclass(eq=False)
class Rule:
    """One fault waiting for its command; made by `Proxy.on`."""

    predicate: Predicate
    action: Action
    times: int | None
    skip: int
    hits: int = 0
    fired: threading.Event = field(default_factory=threading.Event)

    def claims(self, command: Command) -> bool:
        if (self.times is not None and self.hits >= self.times) or not self.predicate(command):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.hits += 1
        return True

    def wait(self, timeout: float = 10.0) -> None:
        """Block until the fault has happened: callbacks have returned, the line is cut or hangs."""
        assert self.fired.wait(timeout), f"no command met the rule within {timeout} s"

    def remove(self) -> None:
        self.times = 0


class Proxy:
    """Listens on a free loopback port; close it, or use it as a context manager."""

    def __init__(self, upstream_port: int, upstream_host: str = "127.0.0.1") -> None:
        self.upstream = (upstream_host, upstream_port)  # may be changed; counts for new connections
        self.refuse = False  # new connections are reset at once
        self.commands: list[Command] = []
        self.round_trips = 0
        self.accepted = 0
        self.closed = threading.Event()
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._lines: set[Line] = set()
        self._open = {"request": threading.Event(), "reply": threading.Event()}
        self._latency_s = (0.0, 0.0)
        self.heal()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed.set()
        self._open["request"].set()
        self._open["reply"].set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(5)
        lines = self.lines()
        for line in lines:
            line.wake()
        for line in lines:
            line.thread.join(5)

    def on(self, predicate: Predicate, action: Action, *, times: int | None = 1, skip: int = 0) -> Rule:
        """Let `action` handle the next `times` matching commands (None: all), after letting `skip` pass."""
        rule = Rule(predicate, action, times, skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and all recorded commands."""
        with self._lock:
            self._rules.clear()
            self.commands.clear()
            self.round_trips = 0

    def names(self) -> list[str]:
        """The recorded commands by name, handshakes (CLIENT, HELLO, AUTH, SELECT) left out."""
        return [c.name for c in list(self.commands) if c.name not in ("CLIENT", "HELLO", "AUTH", "SELECT")]

    def count(self, name: str) -> int:
        return self.names().count(name.upper())

    def reset_all(self) -> int:
        """Reset (RST) every open connection on both sides. Returns how many there were."""
        lines = self.lines()
        for line in lines:
            line.reset()
        for line in lines:
            if line.thread is not threading.current_thread():
                line.thread.join(1)
        return len(lines)

    def black_hole(self, direction: str = "both") -> None:
        """Swallow "request", "reply" or "both" until `heal`, as a partition does: nobody gets an error."""
        for name, gate in self._open.items():
            if direction in (name, "both"):
                gate.clear()

    def heal(self, *, deliver: bool = True) -> None:
        """End the partition. What was held arrives late, also from clients that have gone, unless `deliver` is off."""
        if not deliver:
            self.reset_all()
        for gate in self._open.values():
            gate.set()

    def latency(self, seconds: float, jitter: float = 0.0) -> None:
        """Delay each direction by `seconds` ± `jitter`: once per round trip, not per pipelined command."""
        self._latency_s = (seconds, jitter)

    # -- for the lines

    def lines(self) -> list[Line]:
        with self._lock:
            return list(self._lines)

    def forget(self, line: Line) -> None:
        with self._lock:
            self._lines.discard(line)

    def rule_for(self, command: Command, *, new_round_trip: bool) -> Rule | None:
        """Record the command and find the fault that is meant for it."""
        with self._lock:
            self.round_trips += new_round_trip
            command.round_trip = self.round_trips
            self.commands.append(command)
            return next((rule for rule in self._rules if rule.claims(command)), None)

    def gate(self, direction: str) -> threading.Event:
        return self._open[direction]

    def travel_time_s(self) -> float:
        seconds, jitter = self._latency_s
        return max(0.0, seconds + random.uniform(-jitter, jitter)) if seconds else 0.0

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse or self.closed.is_set():
                _reset(client)
                continue
            self.accepted += 1
            line = Line(self, client, self.accepted)
            with self._lock:  # whoever finds it among the lines may join its thread
                self._lines.add(line)
                line.thread.start()


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
