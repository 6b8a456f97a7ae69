"""Lifecycle events: what a room or a host may hang on the life of a worker process.

Order and meaning follow Sidekiq (docs/spec/core.md §9.4): `startup` handlers run in order and an error there aborts
the boot; `quiet`, `shutdown` and `exit` run in reverse; every other error is reported and the rest still run. All
but `beat` and `heartbeat` fire once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import InvalidHook

Handler = Callable[[], object]
Report = Callable[[BaseException, str], None]

EVENTS = ("startup", "quiet", "shutdown", "exit", "heartbeat", "beat", "fork", "leader")
REVERSED = frozenset({"quiet", "shutdown", "exit"})
REPEATED = frozenset({"beat", "heartbeat", "fork", "leader"})


def _no_handlers() -> dict[str, list[Handler]]:
    return {event: [] for event in EVENTS}


@dataclass
class Hooks:
    """Handlers by event. Belongs to a Config; fired by the launcher and the heartbeat of a worker."""

    handlers: dict[str, list[Handler]] = field(default_factory=_no_handlers)

    def on(self, event: str, handler: Handler) -> Handler:
        """Register a handler; returns it. Raises InvalidHook for an unknown event or something not callable."""
        if event not in self.handlers:
            raise InvalidHook(f"{event!r} is not a lifecycle event; there are {', '.join(EVENTS)}")
        if not callable(handler):
            raise InvalidHook(f"the handler of {event!r} must be callable, got {handler!r}")
        self.handlers[event].append(handler)
        return handler

    def fire(self, event: str, report: Report, *, reraise: bool = False) -> None:
        """Run the handlers of an event. An exception goes to `report`, then on to the caller if `reraise`."""
        handlers = list(self.handlers[event])
        if event in REVERSED:
            handlers.reverse()
        if event not in REPEATED:
            self.handlers[event].clear()
        for handler in handlers:
            try:
                handler()
            except Exception as error:  # a host's hook must not stop the process; it is told and the rest run
                report(error, f"{event} handler")
                if reraise:
                    raise
