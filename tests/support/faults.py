"""What can go wrong with one command: predicates that choose it and actions that break it. For `Proxy.on`."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.line import Command, Exchange
from tests.support.proxy import Predicate


def anything(command: Command) -> bool:
    """Every command but a new connection's greetings."""
    return command[0] not in (b"CLIENT", b"HELLO", b"AUTH", b"SELECT")


def named(*names: str) -> Predicate:
    wanted = {name.upper().encode() for name in names}
    return lambda command: command[0] in wanted


def touching(key: str | bytes) -> Predicate:
    """Commands with this exact argument: a key, mostly."""
    wanted = key.encode() if isinstance(key, str) else key
    return lambda command: wanted in command[1:]


def script(sha: str) -> Predicate:
    """Calls of one script, by EVALSHA or with its source by EVAL. Loading it is no call."""
    wanted = sha.lower().encode()

    def calls(command: Command) -> bool:
        if command[0] in (b"EVALSHA", b"EVALSHA_RO"):
            return command[1].lower() == wanted
        return command[0] in (b"EVAL", b"EVAL_RO") and hashlib.sha1(command[1]).hexdigest().encode() == wanted

    return calls


@dataclass(frozen=True)
class LoseRequest:
    """Redis never gets it. The caller sees a closed connection, or silence until its own timeout."""

    hang: bool = False
    reset: bool = False

    def __call__(self, exchange: Exchange) -> None:
        if self.hang:
            exchange.hang()
        exchange.cut(reset=self.reset)


@dataclass(frozen=True)
class LoseReply:
    """Redis did it, the caller never hears of it: a closed connection, or silence until its own timeout."""

    hang: bool = False
    reset: bool = False

    def __call__(self, exchange: Exchange) -> None:
        exchange.forward()
        if self.hang:
            exchange.hang()
        exchange.cut(reset=self.reset)


@dataclass(frozen=True)
class CutReply:
    """Redis did it, the caller gets the first `after` bytes of the reply and then a closed connection, or silence."""

    after: int
    hang: bool = False

    def __call__(self, exchange: Exchange) -> None:
        exchange.reply(exchange.forward()[: self.after])
        if self.hang:
            exchange.hang()
        exchange.cut()


@dataclass(frozen=True)
class Slice:
    """Request and reply travel in pieces of at most `size` bytes, each in a packet of its own. Nothing gets lost."""

    size: int = 1
    pause_s: float = 0.0

    def __call__(self, exchange: Exchange) -> None:
        line, raw = exchange.line, exchange.raw
        for at in range(0, len(raw), self.size):
            line.send_upstream(raw[at : at + self.size], fresh=exchange.fresh and at == 0)
            time.sleep(self.pause_s)
        reply = line.read_reply(exchange.command)
        line.flush()
        for at in range(0, len(reply), self.size):
            line.client.sendall(reply[at : at + self.size])
            time.sleep(self.pause_s)


@dataclass(frozen=True)
class Delay:
    """The request, the reply or both take longer."""

    request_s: float = 0.0
    reply_s: float = 0.0
    jitter_s: float = 0.0

    def __call__(self, exchange: Exchange) -> None:
        self._sleep(self.request_s)
        reply = exchange.forward()
        self._sleep(self.reply_s)
        exchange.reply(reply)

    def _sleep(self, seconds: float) -> None:
        if seconds:
            time.sleep(max(0.0, seconds + random.uniform(-self.jitter_s, self.jitter_s)))


@dataclass(frozen=True)
class Answer:
    """The proxy answers, Redis never gets it: an error such as "READONLY You can't write …", or raw reply bytes."""

    reply: str | bytes

    def __call__(self, exchange: Exchange) -> None:
        raw = self.reply if isinstance(self.reply, bytes) else f"-{self.reply}\r\n".encode()
        exchange.reply(raw)


@dataclass(frozen=True)
class Before:
    """Call back when the request is at the door of Redis; then let it in, or cut the line."""

    callback: Callable[[], object]
    forward: bool = True

    def __call__(self, exchange: Exchange) -> None:
        self.callback()
        if not self.forward:
            exchange.cut()
        exchange.reply(exchange.forward())


@dataclass(frozen=True)
class After:
    """Call back when Redis has applied the command; then deliver its reply, or cut the line."""

    callback: Callable[[], object]
    deliver: bool = True

    def __call__(self, exchange: Exchange) -> None:
        reply = exchange.forward()
        self.callback()
        if not self.deliver:
            exchange.cut()
        exchange.reply(reply)


class Kill:
    """End a process at exactly this command. The pid may be a function, for a process that starts later."""

    @staticmethod
    def before(pid: int | Callable[[], int], signum: int = signal.SIGKILL) -> Before:
        """The command, and what was pipelined behind it, never reaches Redis."""
        return Before(lambda: _kill(pid, signum), forward=False)

    @staticmethod
    def after(pid: int | Callable[[], int], signum: int = signal.SIGKILL) -> After:
        """The command is applied, its reply and what was pipelined behind it are lost."""
        return After(lambda: _kill(pid, signum), deliver=False)

    @staticmethod
    def freeze(pid: int | Callable[[], int]) -> After:
        """SIGSTOP once the command is applied; the reply waits in the socket for SIGCONT."""
        return After(lambda: _kill(pid, signal.SIGSTOP), deliver=True)


def _kill(pid: int | Callable[[], int], signum: int) -> None:
    os.kill(pid if isinstance(pid, int) else pid(), signum)
