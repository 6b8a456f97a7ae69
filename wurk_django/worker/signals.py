"""The main thread of a process: it waits for signals and acts on them one at a time.

Handlers only write a byte to a pipe. During a stop further signals change nothing (docs/spec/core.md §9.1).
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from . import job_log
from .launcher import Launcher

log = logging.getLogger("wurk")

TICK_S = 1.0  # how often the main loop shows that it is not stuck
STOP = frozenset({"INT", "TERM"})
HANDLED = ("INT", "TERM", "TSTP", "TTIN", "USR2")
_CODES = {name: bytes([index]) for index, name in enumerate((*HANDLED, "USR1", "CHLD"), start=1)}
_NAMES = {code[0]: name for name, code in _CODES.items()}


class SignalLoop:
    """Traps the signals of a process; its main thread takes them from here, one at a time."""

    def __init__(self, names: Sequence[str] = HANDLED) -> None:
        self._names = names
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._previous: dict[str, object] = {}

    @property
    def numbers(self) -> frozenset[signal.Signals]:
        """The signals that this loop takes."""
        return frozenset(signal.Signals[f"SIG{name}"] for name in self._names)

    def trap(self) -> None:
        """Install the handlers. A handler that stood before is called first."""
        for name in self._names:
            number = signal.Signals[f"SIG{name}"]
            self._previous[name] = signal.getsignal(number)
            signal.signal(number, self._handler(name))

    def restore(self) -> None:
        """Put back the handlers that stood before, and close the pipe."""
        for name, handler in self._previous.items():
            signal.signal(signal.Signals[f"SIG{name}"], handler or signal.SIG_DFL)  # type: ignore[arg-type]  # as it was
        self._previous.clear()
        for descriptor in (self._read, self._write):
            os.close(descriptor)
        self._read = self._write = -1  # the numbers may be given to other files

    def send(self, name: str) -> None:
        """Act as if the signal had come; safe from any thread."""
        with suppress(BlockingIOError, OSError):
            os.write(self._write, _CODES[name])

    def wait(self, timeout_s: float | None) -> list[str]:
        """The signals that came, in their order; empty when none has come within the timeout."""
        poller = select.poll()  # unlike a selector it needs no descriptor, of which there may be none left
        poller.register(self._read, select.POLLIN)
        if not poller.poll(None if timeout_s is None else timeout_s * 1000):
            return []
        return [_NAMES[code] for code in os.read(self._read, 64)]

    def serve(self, launcher: Launcher, *, until: Callable[[], bool] | None = None, look_every_s: float = 0.05) -> None:
        """Act on signals until one says stop, or until `until` says that it is time."""
        while until is None or not until():
            launcher.vitals.tick()
            for name in self.wait(TICK_S if until is None else look_every_s):
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
