"""Every error that wurk-django raises on purpose.

One tree under `WurkError`. A class exists only where a caller would act differently on it; its docstring is its
default message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class WurkError(Exception):
    """wurk-django failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class InvalidJob(WurkError, ValueError):
    """The job was refused before anything was written to Redis."""


class MalformedPayload(WurkError, ValueError):
    """These bytes from Redis are not a job."""


class UnknownJob(WurkError):
    """No job of this name is registered in this process."""


class ConfigurationError(WurkError):
    """The configuration cannot work; the message says which part and what to do."""


class RedisUnavailable(WurkError):
    """Redis did not answer. Whether the command was applied is unknown unless the message says otherwise."""


class DialFailed(RedisUnavailable):
    """No connection to Redis could be opened; nothing was sent."""


class PoolExhausted(RedisUnavailable):
    """No Redis connection became free in time; nothing was sent."""


class PushBufferFull(RedisUnavailable):
    """Redis is away and the buffer for pushes is full; `payloads` are the jobs that were not kept."""

    def __init__(self, message: str, payloads: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.payloads = list(payloads)


class NotReplicated(WurkError):
    """Redis has the jobs `jids`, but too few replicas confirmed them in time. A second push would double them."""

    def __init__(self, message: str = "", jids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.jids = list(jids)


class RedisRefused(WurkError):
    """Redis answered with an error, so the command was not applied.

    `code` is the first word of the reply: OOM, READONLY, LOADING, BUSY, MISCONF, NOREPLICAS, WRONGTYPE, NOSCRIPT, …
    """

    def __init__(self, message: str, code: str = "ERR") -> None:
        super().__init__(message)
        self.code = code


class Poisoned(WurkError):
    """A job was buried because its process died again and again while it had it."""


#: Codes of a server that is up and serves nobody, or takes no writes, just now.
OUTAGE_CODES = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"}
)


def is_outage(error: BaseException) -> bool:
    """Does this error say that Redis does not serve, rather than that something is wrong with what was asked?"""
    return isinstance(error, RedisUnavailable) or (isinstance(error, RedisRefused) and error.code in OUTAGE_CODES)


class InvalidHook(WurkError, ValueError):
    """A lifecycle event of this name does not exist, or its handler cannot be called."""
