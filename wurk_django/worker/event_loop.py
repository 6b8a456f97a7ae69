"""The event loop of the process, on which `async def` jobs are awaited.

One loop in one thread, started by the first such job. The thread that took the job waits for it, so concurrency,
retry and acknowledgement are those of any job.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from .control import Shutdown
from .interrupt import Interruptible

STOP_TIMEOUT_S = 3.0


class EventLoop:
    """Runs coroutines for job threads. Made by the launcher; ends with it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any], thread: Interruptible) -> Any:
        """Await `coroutine` on the loop, in the context of the caller, and give its result or error.

        Raises Shutdown when the thread was interrupted meanwhile.
        """
        loop = self._running()
        done: Future[Any] = Future()
        task: list[asyncio.Task[Any]] = []

        def begin() -> None:
            created = loop.create_task(_contained(coroutine), context=context)
            task.append(created)
            created.add_done_callback(lambda finished: _copy_outcome(finished, done))

        def cancel() -> None:
            loop.call_soon_threadsafe(lambda: task[0].cancel() if task else None)

        context = contextvars.copy_context()
        loop.call_soon_threadsafe(begin)
        thread.waiting(cancel)
        try:
            if thread.interrupted:
                cancel()
            return done.result()
        except CancelledError:
            if thread.interrupted:
                raise Shutdown from None
            raise
        finally:
            thread.waiting(None)

    def stop(self) -> None:
        """Cancel what still runs and end the loop."""
        with self._mutex:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="wurk-event-loop", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class _EndOfProgram(Exception):
    """A job raised SystemExit or KeyboardInterrupt; out of a task they would end the loop, and every job on it."""


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise _EndOfProgram from error


def _copy_outcome(finished: asyncio.Task[Any], done: Future[Any]) -> None:
    if finished.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel()
        return
    error = finished.exception()
    if isinstance(error, _EndOfProgram):
        error = error.__cause__
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(finished.result())
