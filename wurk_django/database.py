"""Where jobs meet Django's databases: pushes wait for commits, and runs leave no connection stale.

Around a job the worker does what Django does around a request, but only in threads that have opened a database
connection: asking every time would cost a short job more than all the rest.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import close_old_connections, connections, reset_queries, transaction
from django.db.backends.signals import connection_created

from .clock import monotonic
from .config import Config
from .hooks import Report

IDLE_S = 30.0  # a connection unused for so long is asked whether it lives, before a job needs it


class _Waiting(threading.local):
    """The pushes of this thread that wait for a commit, by database, and the errors of those that were sent since.

    Weak: a rollback drops its pushes, and the last reference to them, without a word.
    """

    def __init__(self) -> None:
        self.pushes: defaultdict[str, weakref.WeakSet[_Push]] = defaultdict(weakref.WeakSet)
        self.errors: list[Exception] = []


class _Push:
    """One push, at the commit of one database; `missing` are the databases that it waits for.

    An error would keep Django from calling the hooks after it, other pushes among them. So the last push of the
    transaction raises the first error; every error that is not raised at once goes to `report`.
    """

    def __init__(
        self, waiting: _Waiting, alias: str, missing: set[str], send: Callable[[], object], report: Report
    ) -> None:
        self._waiting = waiting
        self._alias = alias
        self._missing = missing
        self._send = send
        self._report = report
        waiting.pushes[alias].add(self)

    def __call__(self) -> None:
        waiting = self._waiting
        waiting.pushes[self._alias].discard(self)
        self._missing.discard(self._alias)
        if not self._missing:
            try:
                self._send()
            except Exception as error:  # raised below, once the other pushes of this commit are sent
                waiting.errors.append(error)
                if waiting.pushes[self._alias] or len(waiting.errors) > 1:
                    self._report(error, "push after the commit")
        if waiting.errors and not waiting.pushes[self._alias]:
            first = waiting.errors[0]
            waiting.errors.clear()
            raise first


class CommitDeferral:
    """Holds pushes back until the open transactions have committed (docs: "Commit-safe by default")."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._waiting = _Waiting()

    def is_open(self, using: str | None) -> bool:
        """Is this thread inside `atomic()`, of the named database or of any?"""
        return bool(self._open_aliases(using))

    def after_commit(self, send: Callable[[], object], using: str | None) -> None:
        """Send after the commit of the named database, or after the last commit of all that are open.

        A rollback, of a savepoint too, drops what was registered inside it, and with it the push.
        """
        missing = set(self._open_aliases(using))
        for alias in list(missing):
            if not connections[alias].run_on_commit:  # what still waits belongs to hooks that another's error skipped
                self._waiting.pushes[alias].clear()
                self._waiting.errors.clear()
            transaction.on_commit(_Push(self._waiting, alias, missing, send, self._report), using=alias)

    def _open_aliases(self, using: str | None) -> list[str]:
        if using is not None:
            return [using] if connections[using].in_atomic_block else []
        return [connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block]


class _Touched(threading.local):
    """Has this thread opened a database connection, and when did a job last use it?"""

    connected = False
    used_at = 0.0


_touched = _Touched()
_executors_touched = threading.Event()  # a thread that serves async jobs has opened one


def install(config: Config) -> None:
    """Make a configuration commit-safe and its runs clean."""
    config.defer = CommitDeferral(config.report)
    config.around_job = (close_stale_connections, *((reset_queries,) if settings.DEBUG else ()))
    config.at_thread_end = (close_connections,)
    config.before_fork = (connections.close_all,)
    config.around_coroutine = with_fresh_connections
    config.off_loop = in_orm_thread
    config.run_coroutine = run_coroutine


def watch_connections() -> None:
    """Note which threads open connections; called once, when Django is ready."""
    connection_created.connect(_note, dispatch_uid="wurk_django.database")


def close_stale_connections() -> None:
    """Close connections that are broken or too old, if this thread has any.

    One that idled for long is tried first: servers and firewalls drop those without a word, and the next job should
    not be the one to find out.
    """
    if not _touched.connected:
        return
    now = monotonic()
    if now - _touched.used_at > IDLE_S:
        for connection in connections.all(initialized_only=True):
            connection.errors_occurred = True  # makes Django ask whether the connection is usable
    _touched.used_at = now
    close_old_connections()


def close_connections() -> None:
    """Close every connection of this thread: a server should not have to find out that the thread is gone."""
    if _touched.connected:
        connections.close_all()


async def with_fresh_connections(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a job, with stale connections closed before and after in the thread that serves its ORM calls."""
    if _executors_touched.is_set():
        await sync_to_async(close_stale_connections)()
    try:
        return await coroutine
    finally:
        if _executors_touched.is_set():
            await sync_to_async(close_stale_connections)()


async def in_orm_thread(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call from an event loop in the thread that serves its ORM calls: there its transactions are open."""
    return await sync_to_async(call)(*args, **kwargs)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine from this thread, which serves its ORM calls meanwhile: its open transactions are theirs."""

    async def awaited() -> Any:
        return await coroutine

    return async_to_sync(awaited)()


def _note(**_signal: Any) -> None:
    _touched.connected = True
    if not threading.current_thread().name.startswith("wurk-"):
        _executors_touched.set()
