"""Every error that wurk-django raises on purpose.

One tree under `WurkError`. A class exists only where a caller would act differently on it; its docstring is its
default message.
"""

from __future__ import annotations


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


class RedisRefused(WurkError):
    """Redis answered with an error, so the command was not applied.

    `code` is the first word of the reply: OOM, READONLY, LOADING, BUSY, MISCONF, NOREPLICAS, WRONGTYPE, NOSCRIPT, …
    """

    def __init__(self, message: str, code: str = "ERR") -> None:
        super().__init__(message)
        self.code = code


class InvalidHook(WurkError, ValueError):
    """A lifecycle event of this name does not exist, or its handler cannot be called."""
