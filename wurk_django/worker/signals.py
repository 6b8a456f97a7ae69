"""The main thread of a worker process: it waits for signals and acts on them one at a time.

Handlers only write a byte to a pipe. During a stop further signals change nothing (docs/spec/core.md §9.1).
"""

from __future__ import annotations

import faulthandler
import logging
import os
import selectors
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from . import job_log
from .launcher import Launcher

log = logging.getLogger("wurk")

STOP = frozenset({"INT", "TERM"})
HANDLED = ("INT", "TERM", "TSTP", "TTIN", "USR2")
_CODES = {name: bytes([index]) for index, name in enumerate(HANDLED, start=1)}
_NAMES = {code[0]: name for name, code in _CODES.items()}


class SignalLoop:
    """Traps the signals of a process and serves them in the main thread until one says stop."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._previous: dict[str, object] = {}

    def trap(self) -> None:
        """Install the handlers. A handler that stood before is called first."""
        for name in HANDLED:
            number = signal.Signals[f"SIG{name}"]
            self._previous[name] = signal.getsignal(number)
            signal.signal(number, self._handler(name))

    def send(self, name: str) -> None:
        """Act as if the signal had come; safe from any thread."""
        with suppress(BlockingIOError, OSError):
            os.write(self._write, _CODES[name])

    def serve(self, launcher: Launcher, *, until: Callable[[], bool] | None = None, look_every_s: float = 0.05) -> None:
        """Act on signals until one says stop, or until `until` says that the work is done."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            while until is None or not until():
                if not selector.select(None if until is None else look_every_s):
                    continue
                for code in os.read(self._read, 64):
                    name = _NAMES[code]
                    if name in STOP:
                        log.info("%s: stopping", name)
                        return
                    self._act(name, launcher)

    def _act(self, name: str, launcher: Launcher) -> None:
        if name == "TSTP":
            log.info("TSTP: taking no more jobs")
            launcher.quiet()
        elif name == "TTIN":
            dump_threads()
        elif name == "USR2":
            job_log.reopen()
            log.info("USR2: log files are open again")

    def _handler(self, name: str) -> Callable[[int, FrameType | None], None]:
        previous = self._previous[name]
        chained = callable(previous) and previous is not signal.default_int_handler

        def handle(number: int, frame: FrameType | None) -> None:
            if chained:
                previous(number, frame)  # type: ignore[operator]  # callable, as just asked
            self.send(name)

        return handle


def dump_threads() -> None:
    """Log where every thread stands."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        log.warning("thread %s %s", ident, names.get(ident, "?"))
        for line in "".join(traceback.format_stack(frame)).splitlines():
            log.warning("%s", line)


def enable_crash_dump() -> None:
    """Print the stacks when the interpreter itself crashes."""
    with suppress(Exception):  # stderr may be closed or no file
        faulthandler.enable()
