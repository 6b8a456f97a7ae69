"""A job as it lies in Redis, whatever the bytes are.

Every property has an answer for every bytes: what is missing or of a wrong type is None, empty or 0, and what is no
job at all shows its text as its only argument. docs/spec/core.md §1.3, §1.7.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from .. import clock, wire
from ..config import Config
from ..errors import MalformedPayload
from ..storage import queues

WRAPPERS = frozenset({"Sidekiq::ActiveJob::Wrapper", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"})
MAILERS = frozenset({"ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"})
ENCRYPTED = "[encrypted data]"

_SURROGATE = re.compile("[\ud800-\udfff]")


class JobRecord:
    """One job: its exact bytes, `value`, and what they say. Made by what read it; never asks Redis by itself."""

    def __init__(self, value: bytes, config: Config, queue: str | None = None) -> None:
        self.value = value
        self._config = config
        self._queue = queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.display_class} {self.jid}>"

    @cached_property
    def item(self) -> dict[str, Any]:
        """The payload as a dict; empty when the bytes are no JSON object."""
        try:
            item = wire.decode(self.value)
        except MalformedPayload:
            return {}
        return item if isinstance(item, dict) else {}

    def __getitem__(self, name: str) -> Any:
        """Any field of the payload; None when it is absent."""
        return self.item.get(name)

    @property
    def queue(self) -> str | None:
        """The queue that it lies in, else the one that it names."""
        return self._queue or _text(self["queue"])

    @property
    def jid(self) -> str | None:
        return _text(self["jid"])

    @property
    def bid(self) -> str | None:
        return _text(self["bid"])

    @property
    def klass(self) -> str | None:
        """The field `class` as it stands; `display_class` is what people look for."""
        return _text(self["class"])

    @property
    def args(self) -> list[Any]:
        """The arguments as they stand; the text of the bytes when there is no payload."""
        if not self.item:
            return [self.value.decode("utf-8", "replace")]
        args = self["args"]
        return args if isinstance(args, list) else [] if args is None else [args]

    @property
    def tags(self) -> list[str]:
        tags = self["tags"]
        return [_shown(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def created_at(self) -> datetime | None:
        return self._time("created_at")

    @property
    def enqueued_at(self) -> datetime | None:
        return self._time("enqueued_at")

    @property
    def failed_at(self) -> datetime | None:
        """When it failed first."""
        return self._time("failed_at")

    @property
    def retried_at(self) -> datetime | None:
        """When its last retry failed."""
        return self._time("retried_at")

    @property
    def latency(self) -> float:
        """Seconds since it was enqueued, or else created; 0.0 when neither is known or it is still to come."""
        since = wire.read_time(self["enqueued_at"]) or wire.read_time(self["created_at"])
        return max(clock.now_s() - since, 0.0) if since else 0.0

    @property
    def retry_count(self) -> int | None:
        count = self["retry_count"]
        return count if type(count) is int else None

    @property
    def has_error(self) -> bool:
        """Did it fail before?"""
        return self["error_class"] is not None

    @property
    def error_class(self) -> str | None:
        return _text(self["error_class"])

    @property
    def error_message(self) -> str | None:
        return _text(self["error_message"])

    @cached_property
    def error_backtrace(self) -> list[str] | None:
        """The lines, innermost first; None when there is none that can be read. Bounded (safety S-12)."""
        lines = wire.unpack_backtrace(self["error_backtrace"])
        return None if lines is None else [_shown(line) for line in lines]

    # --- for people -----------------------------------------------------------------------------------------------

    @cached_property
    def display_class(self) -> str | None:
        """The class that people know: out of an Active Job wrapper, and of a mailer job the mailer's method."""
        named = _text(self["display_class"])
        if named:
            return named
        if self.klass not in WRAPPERS:
            return self.klass
        arguments = self._active_job_arguments()
        if self._wrapped_name() in MAILERS and len(arguments) > 1:
            return _text(f"{arguments[0]}#{arguments[1]}")
        return self._wrapped_name()

    @cached_property
    def display_args(self) -> list[Any]:
        """The arguments that people know, without what an adapter adds; a sealed one says that it is."""
        args = self._unwrapped_args() if self.klass in WRAPPERS else list(self.args)
        if self["encrypt"] and args and self.item:
            args[-1] = ENCRYPTED
        return [_shown(arg) for arg in args]

    @property
    def display_kwargs(self) -> dict[str, Any]:
        """The keyword arguments of a job of ours."""
        kwargs = self["kwargs"]
        return _shown(kwargs) if isinstance(kwargs, dict) else {}

    def _unwrapped_args(self) -> list[Any]:
        name, arguments = self._wrapped_name(), self._active_job_arguments()
        if name not in MAILERS:
            return [_without_active_job(argument) for argument in arguments]
        rest = [_without_active_job(argument) for argument in arguments[3:]]
        if name == "ActionMailer::MailDeliveryJob":
            named = rest[0] if rest and isinstance(rest[0], dict) else {}
            return [named.get("params"), named.get("args")]
        return rest

    def _wrapped_name(self) -> str | None:
        inner = self["wrapped"] or (self.args[0] if self.args else None)
        return _text(inner if isinstance(inner, str) else _field(inner, "job_class"))

    def _active_job_arguments(self) -> list[Any]:
        arguments = _field(self.args[0] if self.args else None, "arguments")
        return arguments if isinstance(arguments, list) else []

    def _time(self, name: str) -> datetime | None:
        return time_of(wire.read_time(self[name]))

    # --- changes --------------------------------------------------------------------------------------------------

    def delete(self) -> bool:
        """Take it out of its queue. False: it was no longer there."""
        return self._queue is not None and queues.remove(self._config.redis, self._queue, self.value)


def time_of(seconds: float | None) -> datetime | None:
    """A time in UTC; None for none, and for one that no calendar has."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _text(value: object) -> str | None:
    return _shown(value) if isinstance(value, str) else None


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _shown(value: Any) -> Any:
    """A copy that can be written as UTF-8: lone surrogates are replaced."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    return value


def _without_active_job(value: Any) -> Any:
    """An argument as it was before Active Job serialised it."""
    if isinstance(value, list):
        return [_without_active_job(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "_aj_globalid" in value:
        return value["_aj_globalid"]
    return {key: _without_active_job(item) for key, item in value.items() if not key.startswith("_aj_")}
