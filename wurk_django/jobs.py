"""Declaring jobs and enqueueing them: `Job`, `@job`, their verbs, and `current_job()`.

Sidekiq's words come first; `delay` and `perform_later` say the same as `perform_async`. Each verb has an a-twin that
pushes without blocking the event loop. docs/spec/core.md §2.4.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast, overload

from . import clock, registry, wire
from . import config as configuration
from .client import ABSOLUTE_FROM_S, Client
from .errors import ConfigurationError, InvalidJob
from .wire import Payload

P = ParamSpec("P")
R = TypeVar("R")
When = float | timedelta | datetime


@dataclass(frozen=True)
class CurrentJob:
    """The job that runs here: what code far below `perform` may ask about it."""

    jid: str
    name: str
    queue: str
    retry_count: int | None
    payload: Payload

    @property
    def bid(self) -> str | None:
        """The batch it belongs to."""
        bid = self.payload.get("bid")
        return bid if isinstance(bid, str) else None


#: The payload and the queue of the job that runs in this context; set by whoever runs jobs.
running: ContextVar[tuple[Payload, str] | None] = ContextVar("wurk_running", default=None)


def current_job() -> CurrentJob | None:
    """The job that runs in this thread or task; None outside of one."""
    found = running.get()
    if found is None:
        return None
    payload, queue = found
    count = payload.get("retry_count")
    return CurrentJob(payload["jid"], wire.name_of(payload), queue, count if type(count) is int else None, payload)


class Setter:
    """Options for the pushes that follow: `send_welcome.set(queue="low", wait=60).perform_async(42)`.

    May be used again; each push gets a jid of its own, and a time given by `wait` or `wait_until` stays.
    """

    def __init__(self, job_class: type[Job], options: dict[str, Any] | None = None) -> None:
        self._job_class = job_class
        self._options: dict[str, Any] = {}
        self._sync = False
        self._at: float | None = None
        if options:
            self.set(**options)

    def set(self, **options: Any) -> Setter:
        """Add options. `wait`: seconds or timedelta; `wait_until`: a time; `sync`: run here and now."""
        self._sync = bool(options.pop("sync", self._sync))
        wait_until = options.pop("wait_until", None)
        wait = options.pop("wait", None)
        when = wait_until if wait_until is not None else wait
        if when is not None:
            self._at = _due(when)
        self._options.update({name: _plain_option(value) for name, value in options.items()})
        return self

    def perform_async(self, *args: Any, **kwargs: Any) -> str | None:
        """Enqueue the job; returns its jid, or None when a client middleware stopped it."""
        if self._sync:
            self.perform_inline(*args, **kwargs)
            return None
        return self._client().push(self._item(args, kwargs, self._at))

    def perform_in(self, interval: When, *args: Any, **kwargs: Any) -> str | None:
        """Enqueue the job for later: seconds or timedelta from now, a datetime or epoch seconds. The past is now."""
        self._at = _due(interval)
        return self._client().push(self._item(args, kwargs, self._at))

    def schedule(self, when: When, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """What the class-level `perform_in` does: `class` stands before `args`, as Sidekiq writes it there."""
        item = self._item(args, kwargs, _due(when))
        return self._client().push({"class": item["class"], **item})

    perform_at = perform_in

    def perform_bulk(self, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """Enqueue one job for each argument list, 1,000 a round trip.

        Controls: `at` (epoch seconds, or a list), `spread_interval` (seconds), `batch_size`.
        """
        items = {**self._options, "class": self._job_class, "args": args, **controls}
        if self._at is not None and "at" not in items and "spread_interval" not in items:
            items["at"] = self._at
        return self._client().push_bulk(items)

    def perform_inline(self, *args: Any, **kwargs: Any) -> bool | None:
        """Run the job here, through both middleware chains and a JSON round trip. No Redis, no retry.

        True when it ran, None when a middleware stopped it; its error is the caller's. An `async def` job gets an
        event loop; where one runs already, await `aperform_inline`.
        """
        return _run_inline(self._job_class, self._item(args, kwargs, None))

    async def aperform_async(self, *args: Any, **kwargs: Any) -> str | None:
        """`perform_async` without blocking the event loop."""
        if self._sync:
            await self.aperform_inline(*args, **kwargs)
            return None
        return await _off_loop(self.perform_async, *args, **kwargs)

    async def aperform_in(self, interval: When, *args: Any, **kwargs: Any) -> str | None:
        """`perform_in` without blocking the event loop."""
        return await _off_loop(self.perform_in, interval, *args, **kwargs)

    aperform_at = aperform_in

    async def aperform_bulk(self, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """`perform_bulk` without blocking the event loop."""
        return await _off_loop(self.perform_bulk, args, **controls)

    async def aperform_inline(self, *args: Any, **kwargs: Any) -> bool | None:
        """`perform_inline` in a thread, so that this loop goes on meanwhile; under Django in that of the ORM calls."""
        return await _off_loop(self.perform_inline, *args, **kwargs)

    delay = perform_async
    perform_later = perform_async
    adelay = aperform_async
    aperform_later = aperform_async
    perform_sync = perform_inline

    def _client(self) -> Client:
        return Client()

    def _item(self, args: tuple[Any, ...], kwargs: dict[str, Any], at: float | None) -> dict[str, Any]:
        item: dict[str, Any] = {**self._options, "args": list(args), "class": self._job_class}
        if kwargs:
            item["kwargs"] = kwargs
        if at is not None and at > clock.now_s():
            item["at"] = at
        return item


class Job:
    """A job as a class: options are class keywords and are inherited, `perform` does the work.

        class ChargeCard(Job, queue="critical", retry=3):
            def perform(self, user_id: int, amount: int) -> None: ...

    A fresh instance is made for each run. `name=` gives the class another name on the wire than `module.Class`.
    """

    options: ClassVar[dict[str, Any]] = {}
    wire_name: ClassVar[str] = ""
    is_async: ClassVar[bool] = False

    jid: str = ""
    bid: str | None = None
    batch: Any = None  # set by the batch room

    #: `retry_in(count, error, payload)` may give the seconds to the next attempt, "kill", "discard" or "default".
    retry_in: ClassVar[Callable[[int, BaseException, Payload], Any] | None] = None
    #: `retries_exhausted(payload, error)` is called at the last failure; "discard" keeps the job out of the dead set.
    retries_exhausted: ClassVar[Callable[[Payload, BaseException], Any] | None] = None

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__()
        cls.options = {**cls.options, **{key: _plain_option(value) for key, value in options.items()}}
        cls.wire_name = name or f"{cls.__module__}.{cls.__qualname__}"
        perform = getattr(cls, "perform", None)
        if perform is None:
            return  # a base class that only carries options
        cls.is_async = inspect.iscoroutinefunction(perform)
        registry.register(cls.wire_name, cls)

    @classmethod
    def set(cls, **options: Any) -> Setter:
        """Options for the pushes that follow."""
        return Setter(cls, options)

    @classmethod
    def perform_async(cls, *args: Any, **kwargs: Any) -> str | None:
        """Enqueue the job; returns its jid, or None when a client middleware stopped it."""
        return Setter(cls).perform_async(*args, **kwargs)

    @classmethod
    def perform_in(cls, interval: When, *args: Any, **kwargs: Any) -> str | None:
        """Enqueue the job for later: seconds or timedelta from now, a datetime or epoch seconds."""
        return Setter(cls).schedule(interval, args, kwargs)

    @classmethod
    def perform_bulk(cls, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """Enqueue one job for each argument list."""
        return Setter(cls).perform_bulk(args, **controls)

    @classmethod
    def perform_inline(cls, *args: Any, **kwargs: Any) -> bool | None:
        """Run the job here and now."""
        return Setter(cls).perform_inline(*args, **kwargs)

    @classmethod
    async def aperform_async(cls, *args: Any, **kwargs: Any) -> str | None:
        """`perform_async` without blocking the event loop."""
        return await Setter(cls).aperform_async(*args, **kwargs)

    @classmethod
    async def aperform_in(cls, interval: When, *args: Any, **kwargs: Any) -> str | None:
        """`perform_in` without blocking the event loop."""
        return await Setter(cls).aperform_in(interval, *args, **kwargs)

    @classmethod
    async def aperform_bulk(cls, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """`perform_bulk` without blocking the event loop."""
        return await Setter(cls).aperform_bulk(args, **controls)

    @classmethod
    async def aperform_inline(cls, *args: Any, **kwargs: Any) -> bool | None:
        """`perform_inline` for an `async def` job."""
        return await Setter(cls).aperform_inline(*args, **kwargs)

    @classmethod
    def delay_for(cls, *_args: Any, **_kwargs: Any) -> None:
        """Removed from Sidekiq; tells what to call."""
        raise InvalidJob(f"{cls.wire_name}: delay_for is gone; call perform_in(interval, …)")

    @classmethod
    def delay_until(cls, *_args: Any, **_kwargs: Any) -> None:
        """Removed from Sidekiq; tells what to call."""
        raise InvalidJob(f"{cls.wire_name}: delay_until is gone; call perform_at(time, …)")

    perform_at = perform_in
    perform_sync = perform_inline
    delay = perform_async
    perform_later = perform_async
    aperform_at = aperform_in
    adelay = aperform_async
    aperform_later = aperform_async


class JobFunction(Generic[P, R]):
    """What `@job` returns, for readers and type checkers: the plain function with the verbs on it.

    At run time it is the function itself; the verbs are attributes, those of its `job_class`.
    """

    job_class: type[Job]
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; nothing is enqueued."""
        raise NotImplementedError

    def set(self, **options: Any) -> Setter:
        """See `Job.set`."""
        raise NotImplementedError

    def perform_async(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """See `Setter.perform_async`."""
        raise NotImplementedError

    def perform_in(self, interval: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """See `Setter.perform_in`."""
        raise NotImplementedError

    def perform_bulk(self, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """See `Setter.perform_bulk`."""
        raise NotImplementedError

    def perform_inline(self, *args: P.args, **kwargs: P.kwargs) -> bool | None:
        """See `Setter.perform_inline`."""
        raise NotImplementedError

    async def aperform_async(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """See `Setter.aperform_async`."""
        raise NotImplementedError

    async def aperform_in(self, interval: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """See `Setter.aperform_in`."""
        raise NotImplementedError

    async def aperform_bulk(self, args: Iterable[Any], **controls: Any) -> list[str | None]:
        """See `Setter.aperform_bulk`."""
        raise NotImplementedError

    async def aperform_inline(self, *args: P.args, **kwargs: P.kwargs) -> bool | None:
        """See `Setter.aperform_inline`."""
        raise NotImplementedError

    perform_at = perform_in
    perform_sync = perform_inline
    delay = perform_async
    perform_later = perform_async
    aperform_at = aperform_in
    adelay = aperform_async
    aperform_later = aperform_async


@overload
def job(function: Callable[P, R], /) -> JobFunction[P, R]: ...
@overload
def job(
    *,
    name: str | None = None,
    retry_in: Callable[[int, BaseException, Payload], Any] | None = None,
    retries_exhausted: Callable[[Payload, BaseException], Any] | None = None,
    **options: Any,
) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...
def job(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    retry_in: Callable[[int, BaseException, Payload], Any] | None = None,
    retries_exhausted: Callable[[Payload, BaseException], Any] | None = None,
    **options: Any,
) -> Any:
    """Declare a function as a job: `@job` or `@job(queue="mail", retry=5)`.

    The function stays what it is: calling it runs it. It gains the verbs `perform_async`, `perform_in`, …
    """

    def declare(function: Callable[P, R]) -> JobFunction[P, R]:
        if not inspect.isfunction(function):
            raise ConfigurationError(f"@job takes a function, got {function!r}; a class derives from Job")
        return _declare(function, name, retry_in, retries_exhausted, options)

    return declare if function is None else declare(function)


def _declare(
    function: Callable[P, R],
    name: str | None,
    retry_in: Callable[[int, BaseException, Payload], Any] | None,
    retries_exhausted: Callable[[Payload, BaseException], Any] | None,
    options: dict[str, Any],
) -> JobFunction[P, R]:
    body: dict[str, Any] = {
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "perform": staticmethod(function),
    }
    if retry_in is not None:
        body["retry_in"] = staticmethod(retry_in)
    if retries_exhausted is not None:
        body["retries_exhausted"] = staticmethod(retries_exhausted)
    wire_name = name or f"{function.__module__}.{function.__qualname__}"
    made = types.new_class(function.__name__, (Job,), {"name": wire_name, **options}, lambda space: space.update(body))
    declared = cast("JobFunction[P, R]", function)
    declared.job_class = made
    for verb in (
        "set", "perform_async", "perform_in", "perform_at", "perform_bulk", "perform_inline", "perform_sync",
        "delay", "perform_later", "delay_for", "delay_until", "aperform_async", "aperform_in", "aperform_at",
        "aperform_bulk", "aperform_inline", "adelay", "aperform_later",
    ):  # fmt: skip
        setattr(declared, verb, getattr(made, verb))
    return declared


def instantiate(job_class: type[Job], payload: Payload) -> Job:
    """A fresh instance for one run."""
    instance = job_class()
    instance.jid = payload["jid"]
    bid = payload.get("bid")
    if bid is not None:
        instance.bid = bid
    return instance


def keyword_arguments(payload: Payload) -> dict[str, Any]:
    """The keyword arguments of a payload; anything that cannot be some counts as none."""
    kwargs = payload.get("kwargs")
    return kwargs if type(kwargs) is dict else {}


async def _off_loop(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call in a thread; under Django in the one that serves the ORM calls: a push waits for its transactions."""
    result: R = await configuration.default().off_loop(call, *args, **kwargs)
    return result


def _run_inline(job_class: type[Job], item: dict[str, Any]) -> bool | None:
    client = Client()
    prepared = client.prepare(item)
    if not prepared:
        return None
    payload = wire.decode(wire.encode(prepared, client.config.options.max_job_bytes))
    instance = instantiate(job_class, payload)
    perform: Callable[..., Any] = instance.perform  # type: ignore[attr-defined]  # declared by every registered class

    def perform_now() -> bool:
        outcome = perform(*payload["args"], **keyword_arguments(payload))
        if job_class.is_async:
            client.config.run_coroutine(outcome)
        return True

    token = running.set((payload, payload["queue"]))
    try:
        ran = client.config.server_middleware.invoke(perform_now, instance, payload, payload["queue"])
    finally:
        running.reset(token)
    return True if ran else None


def _due(when: When) -> float:
    """Epoch seconds of a span or time. Raises InvalidJob for what is neither, and for a naive datetime."""
    if isinstance(when, timedelta):
        return clock.now_s() + when.total_seconds()
    if isinstance(when, datetime):
        if when.tzinfo is None and not configuration.default().options.naive_datetimes:
            raise InvalidJob(f"{when!r} has no time zone; pass an aware datetime (USE_TZ is on)")
        return when.timestamp()
    if wire.is_number(when):
        return clock.now_s() + when if when < ABSOLUTE_FROM_S else when
    raise InvalidJob(f"a time must be seconds, a timedelta or a datetime, got {wire.shown(when)}")


def _plain_option(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
