"""A thread that takes jobs and runs them until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..clock import monotonic
from . import identity
from .busy import Cell
from .dispatcher import Dispatcher
from .interrupt import Interruptible
from .runner import Runner
from .work import Outcome, Work

RESTART_PAUSE_S = 1.0  # before a thread that failed is replaced, so that a lasting fault does not spin


class Processor(threading.Thread):
    """One worker thread of a capsule. Made and replaced by the manager; ends when the dispatcher hands out no more,
    or when a hard stop interrupted its job."""

    def __init__(
        self, number: int, dispatcher: Dispatcher, runner: Runner, cell: Cell, died: Callable[[Processor], None]
    ) -> None:
        super().__init__(name=f"wurk-{dispatcher.capsule.name}-{number}", daemon=True)
        self.work: Work | None = None  # the job that runs now; read by the manager at a hard stop
        self.switch = Interruptible()
        self._dispatcher = dispatcher
        self._runner = runner
        self._cell = cell
        self._died = died

    def run(self) -> None:
        name = identity.thread_id()
        dispatcher, runner, switch, cell = self._dispatcher, self._runner, self.switch, self._cell
        try:
            while (work := dispatcher.take()) is not None:
                self.work = work
                started = monotonic()
                outcome = runner.run(work, switch, name, cell)
                if outcome is Outcome.ACKNOWLEDGE:
                    dispatcher.finish(work, monotonic() - started)
                else:
                    dispatcher.release(work)
                self.work = None
                if switch.interrupted:
                    return
        except BaseException as error:  # a fault of ours: told, and a fresh thread takes over after a moment
            dispatcher.capsule.config.report(error, f"thread {self.name}")
            time.sleep(RESTART_PAUSE_S)
        finally:
            if self.work is not None:  # this thread dies of a bug; if the job is still ours, reconciling takes it back
                dispatcher.release(self.work)
                self.work = None
            runner.end_thread()
            self._died(self)
