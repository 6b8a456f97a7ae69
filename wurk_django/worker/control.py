"""What an exception can tell a processor. Private to the worker."""

from __future__ import annotations


class Shutdown(BaseException):
    """The hard stop: the job is back on its queue, the thread must end. Not an Exception, so that `except Exception`
    in a job cannot swallow it."""


class Skip(Exception):
    """The job was dealt with elsewhere: acknowledge it, report nothing."""


def caused_by_shutdown(error: BaseException) -> bool:
    """Is there a Shutdown anywhere among the causes of this error? Ends also on circular causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        if isinstance(found, Shutdown):
            return True
        seen.add(id(found))
        waiting += [found.__cause__, found.__context__]
    return False
