"""A process that has everything imported and forks a child for each point: a fork costs milliseconds, a start a second.

It has one thread and no connection, so that its children start clean. One child at a time; it ends when its owner does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any

Run = Callable[[dict[str, Any]], int]


class Zygote:
    """Made before its owner starts threads. `run` does the work of a child and returns its exit code."""

    def __init__(self, run: Run) -> None:
        self._socket, theirs = socket.socketpair()
        if os.fork() == 0:
            self._socket.close()
            try:
                _serve(theirs, run)
            finally:
                os._exit(0)
        theirs.close()
        self._lines = self._socket.makefile("r")

    def fork(self, order: dict[str, Any]) -> int:
        """Make a child that waits; returns its pid."""
        self._say(order)
        return int(self._lines.readline())

    def release(self) -> None:
        """Let the child begin."""
        self._say("go")

    def wait(self, timeout_s: float, pid: int) -> int:
        """The child's exit code, negative for a signal. One that takes longer is killed, which is code -9."""
        self._socket.settimeout(timeout_s)
        try:
            line = self._lines.readline()
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._lines = self._socket.makefile("r")
            line = self._lines.readline()
        finally:
            self._socket.settimeout(None)
        return int(line)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _say(self, message: object) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


def _serve(owner: socket.socket, run: Run) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = owner.makefile("r")
    while line := lines.readline():
        pid = os.fork()
        if pid == 0:
            _be_child(json.loads(line), lines, owner, run)
        owner.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        owner.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _be_child(order: dict[str, Any], lines: Any, owner: socket.socket, run: Run) -> None:
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if lines.readline():
            owner.close()
            code = run(order)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
