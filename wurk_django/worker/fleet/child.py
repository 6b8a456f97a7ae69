"""The life of a child of a fleet, from the fork to its exit.

It ends by `os._exit`: what the parent registered with `atexit` is the parent's, and so are the frames above the fork.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

from ...config import Config
from ...errors import WurkError
from .. import process
from ..launcher import Launcher
from ..signals import SignalLoop

log = logging.getLogger("wurk")

LOOK_S = 0.5  # how often a child looks whether its parent lives
ORPHAN_JOBS_S = 3.0  # what running jobs have when it does not: they are back on their queues 4 s after its death
ORPHAN_END_S = 4.0  # and so long after the look nothing is left, whatever still hangs


def live(config: Config, inherited: SignalLoop, parent: int, *, quiet: bool, burst: bool) -> NoReturn:
    """Be a child: called right after the fork, with the signals of the parent's loop blocked. Never returns."""
    code = process.EXIT_FAILED
    try:
        signals = _take_signals(inherited)
        watch = ParentWatch(parent, signals)
        watch.start()
        config.reset_redis_pools()
        process.check(config)
        config.hooks.fire("fork", config.report)
        process.work(config, signals, quiet=quiet, burst=burst, on_ready=watch.attach)
        code = process.EXIT_OK
    except WurkError as error:
        log.error("this child could not start: %s", error)
    except BaseException:  # the edge of a process: told, and the parent sees the exit code
        log.exception("this child ended by an error")
    finally:
        _leave(code)


def _take_signals(inherited: SignalLoop) -> SignalLoop:
    """Let go of the parent's pipe and handlers, install our own, and only then let signals in."""
    inherited.restore()
    signal.signal(signal.SIGUSR1, lambda *_: None)  # not SIG_IGN: programs that jobs start would inherit that
    signals = SignalLoop()
    signals.trap()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, inherited.numbers)
    return signals


def _leave(code: int) -> NoReturn:
    with suppress(BaseException):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # closed, or a full disk
            stream.flush()
    os._exit(code)


class ParentWatch(threading.Thread):
    """Ends this process soon after its parent: nobody would restart it, reload it or stop it."""

    def __init__(self, parent: int, signals: SignalLoop) -> None:
        super().__init__(name="wurk-parent-watch", daemon=True)
        self._parent = parent
        self._signals = signals
        self._launcher: Launcher | None = None
        self._orphaned = False

    def attach(self, launcher: Launcher) -> None:
        """The worker runs from now on."""
        self._launcher = launcher
        if self._orphaned:
            launcher.hurry(ORPHAN_JOBS_S)

    def run(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(LOOK_S)
        self._orphaned = True
        log.warning("the parent %d is gone; ending", self._parent)
        if self._launcher is not None:
            self._launcher.hurry(ORPHAN_JOBS_S)
        self._signals.send("TERM")
        time.sleep(ORPHAN_END_S)
        os._exit(process.EXIT_FAILED)
