"""A program that interrupts threads in the middle of their Redis commands: `cancelling.py URL COUNT`.

Prints, as JSON, how many interrupts arrived, which answers belonged to another question, and how many threads no longer
moved at the end. A process of its own, because an interrupt may hit whatever the thread runs, the test runner included.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from contextlib import suppress

from wurk_django.connection import Redis, RedisOptions
from wurk_django.errors import RedisUnavailable

THREADS = 4
PATIENCE_S = 15

_interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupt.argtypes = (ctypes.c_ulong, ctypes.py_object)


class Cancelled(BaseException):
    """Raised in another thread, at any bytecode."""


class Asker(threading.Thread):
    """Asks Redis to echo tags of its own until it is told to stop."""

    def __init__(self, pool: Redis, name: int) -> None:
        super().__init__(daemon=True)
        self.pool = pool
        self.tag = name
        self.asked = 0
        self.cancelled = 0
        self.crossed: list[str] = []
        self.done = False

    def run(self) -> None:
        while not self.done:
            with suppress(Cancelled):  # one that hit the handling of the one before
                self._survive()

    def _survive(self) -> None:
        while not self.done:
            try:
                self._ask()
            except Cancelled:
                self.cancelled += 1
            except RedisUnavailable:
                continue

    def _ask(self) -> None:
        while not self.done:
            self.asked += 1
            tag = b"%d %d" % (self.tag, self.asked)
            answers = [self.pool.execute("ECHO", tag), *self.pool.pipeline([("ECHO", tag), ("ECHO", tag)])]
            if answers != [tag] * 3:
                self.crossed.append(f"{tag!r}: {answers!r}")


def main(url: str, count: int) -> None:
    sys.unraisablehook = lambda _: None  # an interrupt that hit a destructor is of no interest
    threading.excepthook = lambda _: None
    # An interrupt that hits the pool's own bookkeeping may cost a slot.
    pool = Redis(RedisOptions(url), size=10 * count)
    pool.execute("PING")  # imports what a first dial needs: the interpreter's import lock does not bear an interrupt
    askers = [Asker(pool, number) for number in range(THREADS)]
    for asker in askers:
        asker.start()
    deadline = time.monotonic() + PATIENCE_S
    while sum(asker.cancelled for asker in askers) < count and time.monotonic() < deadline:
        for asker in askers:
            _interrupt(asker.ident or 0, Cancelled)
        time.sleep(0.0005)
    time.sleep(0.05)
    before = [asker.asked for asker in askers]
    deadline = time.monotonic() + 10
    while any(asker.asked <= seen for asker, seen in zip(askers, before, strict=True) if asker.is_alive()):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    stuck = [asker.tag for asker, seen in zip(askers, before, strict=True) if asker.is_alive() and asker.asked <= seen]
    for asker in askers:
        asker.done = True
    print(
        json.dumps(
            {
                "cancelled": sum(asker.cancelled for asker in askers),
                "asked": sum(asker.asked for asker in askers),
                "crossed": [line for asker in askers for line in asker.crossed],
                "stuck": stuck,
            }
        )
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
