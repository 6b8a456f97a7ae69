"""The onion around a push and around a run.

An entry is a class and its arguments; each job gets a fresh instance of every entry, so middleware may keep state
on `self`. A client middleware has `call(job_class, payload, queue, redis, call_next)` and returns what `call_next()`
gave, or another payload, or something falsy to stop the push. A server middleware has `call(job, payload, queue,
call_next)` and returns what `call_next()` gave. Client middleware also runs for interrupted and retried jobs and
must be idempotent; there `job_class` is a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

CallNext = Callable[[], Any]


class ClientMiddleware(Protocol):
    """What an entry of the client chain looks like."""

    def call(self, job_class: object, payload: dict[str, Any], queue: str, redis: object, call_next: CallNext) -> Any:
        """Wrap one push; the innermost step returns the payload."""


class ServerMiddleware(Protocol):
    """What an entry of the server chain looks like."""

    def call(self, job: object, payload: dict[str, Any], queue: str, call_next: CallNext) -> Any:
        """Wrap one run; the innermost step performs the job."""


class Entry:
    """One place in a chain: the class and what it is built with."""

    __slots__ = ("arguments", "middleware", "wants_config")

    def __init__(self, middleware: type[Any], arguments: tuple[Any, ...]) -> None:
        self.middleware = middleware
        self.arguments = arguments
        self.wants_config = hasattr(middleware, "config")

    def build(self, config: object) -> Any:
        instance = self.middleware(*self.arguments)
        if self.wants_config:
            instance.config = config
        return instance


class Chain:
    """An ordered list of middleware, outermost first. A class stands in it at most once."""

    def __init__(self, config: object = None, entries: tuple[Entry, ...] = ()) -> None:
        self.config = config
        self._entries = entries  # a tuple, replaced as a whole: a running job keeps the chain it started with

    def add(self, middleware: type[Any], *arguments: Any) -> None:
        """Append, replacing an entry of the same class."""
        self._put(len(self._without(middleware)), middleware, arguments)

    def prepend(self, middleware: type[Any], *arguments: Any) -> None:
        """Insert outermost, replacing an entry of the same class."""
        self._put(0, middleware, arguments)

    def insert_before(self, old: type[Any], middleware: type[Any], *arguments: Any) -> None:
        """Move or insert before `old`; at the front when `old` is not there."""
        self._put_beside(old, middleware, arguments, offset=0, absent=0)

    def insert_after(self, old: type[Any], middleware: type[Any], *arguments: Any) -> None:
        """Move or insert after `old`; at the end when `old` is not there."""
        self._put_beside(old, middleware, arguments, offset=1, absent=len(self._without(middleware)))

    def remove(self, middleware: type[Any]) -> None:
        """Take the entry of this class out, if there is one."""
        self._entries = self._without(middleware)

    def clear(self) -> None:
        """Take every entry out."""
        self._entries = ()

    def copy_for(self, config: object) -> Chain:
        """The same entries, bound to another config or capsule."""
        return Chain(config, self._entries)

    def __contains__(self, middleware: type[Any]) -> bool:
        return any(entry.middleware is middleware for entry in self._entries)

    def __iter__(self) -> Iterator[type[Any]]:
        return (entry.middleware for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def invoke(self, final: CallNext, *arguments: Any) -> Any:
        """Run the chain around `final`; returns what the outermost entry returned."""
        if not self._entries:
            return final()
        step: CallNext = lambda *_ignored: final()  # noqa: E731
        for entry in reversed(self._entries):
            step = _bind(entry.build(self.config).call, arguments, step)
        return step()

    def _without(self, middleware: type[Any]) -> tuple[Entry, ...]:
        return tuple(entry for entry in self._entries if entry.middleware is not middleware)

    def _put(self, position: int, middleware: type[Any], arguments: tuple[Any, ...]) -> None:
        rest = self._without(middleware)
        self._entries = (*rest[:position], Entry(middleware, arguments), *rest[position:])

    def _put_beside(
        self, old: type[Any], middleware: type[Any], arguments: tuple[Any, ...], *, offset: int, absent: int
    ) -> None:
        # Sidekiq moves an entry that is already there with the arguments it had.
        present = next((entry for entry in self._entries if entry.middleware is middleware), None)
        rest = self._without(middleware)
        found = next((index for index, entry in enumerate(rest) if entry.middleware is old), None)
        position = absent if found is None else found + offset
        self._entries = (*rest[:position], present or Entry(middleware, arguments), *rest[position:])


def _bind(call: Callable[..., Any], arguments: tuple[Any, ...], call_next: CallNext) -> CallNext:
    # Values that a middleware passes to its continuation are accepted and ignored, as in Sidekiq.
    return lambda *_ignored: call(*arguments, call_next)
