"""Background parts of a worker process and the one loop they share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("wurk")

#: How long `stop` waits for a tick that is under way; a wedged tick must not hold the end of the process.
JOIN_TIMEOUT_S = 5.0


class Component(Protocol):
    """A background part of a process. Started, quieted and stopped once each by the launcher."""

    def start(self) -> None:
        """Begin; returns at once."""

    def quiet(self) -> None:
        """Take on nothing new."""

    def stop(self) -> None:
        """End; returns within JOIN_TIMEOUT_S."""


class Periodic:
    """A thread that calls `tick` again and again, sleeping `wait()` seconds before each call.

    Made by the launcher; its thread ends by `stop`, which wakes the sleeper. An exception of a tick goes to `report`
    and the loop carries on. The thread reference is dropped only after a confirmed end, so that a wedged tick can
    never be doubled by a later start.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], object],
        wait: Callable[[], float],
        report: Callable[[BaseException, str], None],
        *,
        first_wait: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self._tick = tick
        self._wait = wait
        self._first_wait = first_wait or wait
        self._report = report
        self._done = threading.Event()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def stopping(self) -> bool:
        """True once `stop` was asked for; a long tick looks at it between its steps."""
        return self._done.is_set()

    def sleep(self, seconds: float) -> None:
        """Rest within a tick; a stop ends it."""
        self._done.wait(seconds)

    def start(self) -> None:
        with self._mutex:
            if self._thread is not None and self._thread.is_alive():
                return
            self._done.clear()
            thread = threading.Thread(target=self._run, name=f"wurk-{self.name}", daemon=True)
            thread.start()
            self._thread = thread  # not before: no more threads may be had, and one that never ran cannot be joined

    def quiet(self) -> None:
        """Keep ticking: most background parts matter most while a process winds down."""

    def stop(self, timeout_s: float = JOIN_TIMEOUT_S) -> bool:
        """Ask the loop to end and wait for it; True when it has ended."""
        with self._mutex:
            self._done.set()
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return True
            thread.join(timeout_s)
            if thread.is_alive():
                log.warning("%s is still busy after %s s; leaving it behind", self.name, timeout_s)
                return False
            self._thread = None
            return True

    def _run(self) -> None:
        if self._done.wait(self._first_wait()):
            return
        while True:
            try:
                self._tick()
            except Exception as error:  # the edge of a thread: told, then the next tick
                self._report(error, self.name)
            if self._done.wait(self._wait()):
                return
