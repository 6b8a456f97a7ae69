"""Interrupting a thread that runs a job, and only while it runs one.

CPython raises an exception in another thread at its next bytecode. It must hit the job's own code and nothing after
it: booking an outcome is never cut short. So a thread says when it may be interrupted, and on the way out takes back
an exception that was sent but has not arrived.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress

from .control import Shutdown

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
# The class by its address: as a py_object, the None that takes an exception back would be sent as an object.
_set_exception.argtypes = (ctypes.c_ulong, ctypes.c_void_p)


class Interruptible:
    """The interrupt switch of one processor thread. `enter` and `leave` are its own, `interrupt` is the manager's."""

    def __init__(self) -> None:
        self.interrupted = False
        self._mutex = threading.Lock()
        self._inside = False
        self._thread = 0
        self._cancel: Callable[[], object] | None = None

    def enter(self) -> None:
        """From here on the job may be interrupted. Raises Shutdown when that was asked for already."""
        with self._mutex:
            if self.interrupted:
                raise Shutdown
            self._thread = threading.get_ident()
            self._inside = True

    def leave(self) -> None:
        """From here on nothing interrupts this thread."""
        with self._mutex:
            self._inside = False
            if self.interrupted:
                _set_exception(self._thread, None)  # on its way, perhaps; no bytecode of ours has seen it

    def waiting(self, cancel: Callable[[], object] | None) -> None:
        """The thread waits where no exception can reach it; `cancel` ends that wait. None: it waits no longer."""
        with self._mutex:
            self._cancel = cancel

    def interrupt(self) -> None:
        """Raise Shutdown in the job that runs, if one does, and in every later one."""
        with self._mutex:
            self.interrupted = True
            if not self._inside:
                return
            if self._cancel is not None:
                with suppress(RuntimeError):  # the event loop has ended, and the wait with it
                    self._cancel()
            else:
                _set_exception(self._thread, id(Shutdown))
