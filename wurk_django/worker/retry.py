"""What becomes of a job that failed: decided here, written by the runner.

The deciding part is pure but for the job's own hooks. It starts from the bytes that were fetched, so what middleware
changed in the payload is never stored. docs/spec/core.md §5.
"""

from __future__ import annotations

import math
import random
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from .. import clock, registry, wire
from ..config import Options
from ..jobs import Job
from ..wire import Payload

MAX_MESSAGE: Final = 10_000  # characters of an error message that are stored
UNPRINTABLE: Final = "!!! ERROR MESSAGE THREW AN ERROR !!!"
MAX_COUNT: Final = 1000  # no delay grows beyond this attempt's: a hostile count must not build a huge number
MAX_DELAY_S: Final = 10**12
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Retry:
    """Try again `delay_s` from now."""

    payload: Payload
    delay_s: float


@dataclass(frozen=True)
class Bury:
    """Into the dead set, after the death handlers."""

    payload: Payload


@dataclass(frozen=True)
class Drop:
    """Gone, after the death handlers: the job or its hook said so."""

    payload: Payload


@dataclass(frozen=True)
class Failure:
    """A failed run: the parsed payload as fetched, the queue it was fetched from, the error, its class if known."""

    payload: Payload
    queue: str
    error: BaseException
    job_class: type[Job] | None


Report = Callable[[BaseException, str], None]


def decide(
    failure: Failure,
    options: Options,
    report: Report,
    clean: Callable[[list[str]], list[str]] = lambda lines: lines,
    uniform: Callable[[int], int] = random.randrange,
) -> Retry | Bury | Drop:
    """Retry, bury or drop. Errors of the job's hooks go to `report` and mean the default.

    `uniform(n)` gives a random integer in [0, n): the jitter.
    """
    payload = dict(failure.payload)
    allowed = payload.get("retry")
    if allowed is None:
        allowed = True if failure.job_class is None else failure.job_class.options.get("retry", True)
    if allowed is False:
        return Drop(payload)
    limit = allowed if type(allowed) is int else options.max_retries
    count = _describe_failure(payload, failure, options, clean)
    if _is_exhausted(payload, count, limit):
        return _exhausted(payload, failure, options, report)
    asked = _ask_retry_in(failure, count, payload, report)
    if asked == "discard":
        payload["discarded_at"] = wire.stamp(options.wire_timestamps)
        return Drop(payload)
    if asked == "kill":
        return _exhausted(payload, failure, options, report)
    capped = min(count, MAX_COUNT)
    delay = asked if isinstance(asked, int) else capped**4 + 15
    return Retry(payload, min(delay, MAX_DELAY_S) + uniform(10 * (capped + 1)))


def message_of(error: BaseException) -> str:
    """The text of an error as it is stored: cut, and without anything that is not UTF-8."""
    try:
        text = str(error)
    except Exception:  # the text of a user's exception is user code
        return UNPRINTABLE
    return _SURROGATE.sub("\ufffd", text[:MAX_MESSAGE])


def class_of(error: BaseException) -> str:
    """The name of an error's class: bare for a builtin, else with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def backtrace_of(error: BaseException) -> list[str]:
    """The frames of an error, innermost first: `path:line:in 'function'`."""
    frames = traceback.extract_tb(error.__traceback__, -wire.MAX_BACKTRACE_LINES)
    return [f"{frame.filename}:{frame.lineno}:in '{frame.name}'" for frame in reversed(frames)]


def _describe_failure(
    payload: Payload, failure: Failure, options: Options, clean: Callable[[list[str]], list[str]]
) -> int:
    """Write the error fields; returns the retry count of this failure, 0 for the first."""
    retry_queue = payload.get("retry_queue")
    payload["queue"] = retry_queue if wire.is_queue_name(retry_queue) else failure.queue
    payload["error_message"] = message_of(failure.error)
    payload["error_class"] = class_of(failure.error)
    count = payload.get("retry_count")
    now = wire.stamp(options.wire_timestamps)
    if type(count) is int and count >= 0:
        payload["retried_at"] = now
        count += 1
    else:
        payload["failed_at"] = now
        count = 0
    payload["retry_count"] = count
    wanted = payload.get("backtrace")
    if wanted:
        lines = clean(backtrace_of(failure.error))
        if type(wanted) is int:
            lines = lines[: max(wanted, 0)]
        payload["error_backtrace"] = wire.pack_backtrace(lines)
    return count


def _is_exhausted(payload: Payload, count: int, limit: int) -> bool:
    retry_for = payload.get("retry_for")
    if type(retry_for) in (int, float) and retry_for:
        failed_at = wire.read_time(payload.get("failed_at"))
        return failed_at is not None and failed_at + retry_for < clock.now_s()
    return count >= limit


def _hooks_of(failure: Failure) -> type[Job] | None:
    """Whose hooks are asked: those of the wrapped class if there is one, whether it has any or not."""
    if failure.job_class is None:
        return None
    wrapped = failure.payload.get("wrapped")
    return registry.get(wrapped) if wrapped else failure.job_class


def _ask_retry_in(failure: Failure, count: int, payload: Payload, report: Report) -> int | str | None:
    job_class = _hooks_of(failure)
    hook = None if job_class is None else job_class.retry_in
    if hook is None:
        return None
    try:
        answer: Any = hook(count, failure.error, payload)
    except Exception as error:  # a broken hook must not lose the job: the default delay
        report(error, f"retry_in of {wire.name_of(payload)}")
        return None
    return _read_delay(answer)


def _read_delay(answer: Any) -> int | str | None:
    if answer in ("discard", "kill"):
        return str(answer)
    if isinstance(answer, bool):
        return None
    if isinstance(answer, timedelta):
        answer = answer.total_seconds()
    try:
        number = float(answer)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 1 else None


def _exhausted(payload: Payload, failure: Failure, options: Options, report: Report) -> Bury | Drop:
    job_class = _hooks_of(failure)
    hook = None if job_class is None else job_class.retries_exhausted
    answer: Any = None
    if hook is not None:
        try:
            answer = hook(payload, failure.error)
        except Exception as error:  # reported; the job is buried all the same
            report(error, f"retries_exhausted of {wire.name_of(payload)}")
    if payload.get("dead") is False or answer == "discard":
        payload["discarded_at"] = wire.stamp(options.wire_timestamps)
        return Drop(payload)
    return Bury(payload)
