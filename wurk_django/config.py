"""The configuration of a process: plain data, assembled once, frozen when a worker starts.

One global stands here, the default Config. It is read only where a caller gave none; everything else is passed in.
Options are Sidekiq's (docs/spec/core.md §10.1); times are seconds, fractions allowed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from . import keys
from .clock import monotonic
from .component import Component
from .connection import Redis, RedisOptions, RetryReport
from .errors import ConfigurationError, is_outage
from .feature import Feature
from .hooks import Hooks
from .middleware import Chain
from .wire import Payload

log = logging.getLogger("wurk")
_outage_lines = threading.local()  # when this thread last logged one

ErrorHandler = Callable[[BaseException, dict[str, Any]], object]
DeathHandler = Callable[[dict[str, Any], BaseException], object]
Counter = Callable[[str, int], object]
RecoveryCallback = Callable[[dict[str, Any], "Pill | None"], object]
PoisonCallback = Callable[[dict[str, Any]], object]
Mode = Literal["strict", "random", "weighted"]

DEFAULT_QUEUE = "default"
INTERNAL_POOL = 10  # connections for what a process does beside its capsules: pushes, heartbeat, scheduler
SPARE_CONNECTIONS = 5  # of a capsule's main pool, beyond one for each thread
OUTAGE_LINE_S = 10.0  # a thread logs no more than one line in this time while Redis does not serve
MAX_BLOCKED_QUEUES = 8  # queues that an idle capsule waits on at once, each on a connection of its own


class Deferral(Protocol):
    """Holds a push back until the open transactions have committed; set by the Django face.

    `using` names one database; None means every database in which this thread has a transaction open.
    """

    def is_open(self, using: str | None) -> bool:
        """Is there a transaction to wait for?"""

    def after_commit(self, send: Callable[[], object], using: str | None) -> None:
        """Call `send` when all of them have committed, never if one is rolled back."""


class Replication(NamedTuple):
    """How many replicas a push waits for, and for how long. 0: for none."""

    replicas: int = 0
    timeout_s: float = 0.0


ALONE = Replication()


class Outage(Protocol):
    """Stands between a client and Redis so that pushes survive an outage; set by the room `buffer`."""

    def push(self, payloads: list[Payload], redis: Redis, replication: Replication) -> None:
        """Send the payloads, or keep them until Redis is back. Raises what the caller must know."""


@dataclass(frozen=True)
class Pill:
    """A job that was buried because its process died each time. `score` is its place in the dead set, None without."""

    jid: str
    klass: str
    count: int
    queue: str
    job: bytes
    score: float | None


@dataclass(frozen=True)
class Options:
    """Every option of the core with its default. Unit: seconds, unless the name says otherwise."""

    concurrency: int = 5
    timeout: float = 25
    poll_interval: float = 0.5
    poll_interval_average: float | None = None
    scheduler_initial_wait: float | None = None
    heartbeat_interval: float = 10
    heartbeat_ttl: float = 60
    reaper_interval: float = 60
    reaper_grace: float = 30
    reaper_watch_interval: float = 5
    reaper_full_interval: float = 3600
    poison_limit: int = 3
    hung_timeout: float = 60
    maxmem_mb: float | None = None
    fetch_block: float = 2
    leader_key: str = keys.LEADER
    leader_ttl: float = 30
    leader_interval: float = 5
    health_check: bool | int | str | None = None
    health_metrics: bool = True
    ready_window: float = 30
    min_ready: int | None = None
    wedged_after: float = 30
    max_retries: int = 25
    dead_max_jobs: int = 10_000
    dead_timeout_in_seconds: float = 15_552_000
    max_job_bytes: int = 1 << 20
    on_complex_arguments: Literal["raise", "warn", "off"] = "raise"
    wire_timestamps: Literal["milliseconds", "seconds"] = "milliseconds"
    enqueue_on_commit: bool = True
    redis_idle_timeout: float | None = None
    reliable_push: bool = False
    reliable_push_buffer: int = 1000
    reliable_push_overflow: Literal["raise", "drop_oldest"] = "raise"
    reliable_push_drain_interval: float = 2
    push_wait_replicas: int = 0
    push_wait_timeout: float = 1
    default_job_options: tuple[tuple[str, Any], ...] = (("retry", True), ("queue", DEFAULT_QUEUE))
    labels: tuple[str, ...] = ()
    tag: str = ""
    environment: str = ""
    logged_job_attributes: tuple[str, ...] = ("bid", "tags")
    skip_default_job_logging: bool = False
    log_arguments: bool = False
    naive_datetimes: bool = True
    log_format: Literal["pretty", "plain", "json"] = "pretty"


@dataclass(frozen=True)
class QueueSpec:
    """The queues of a capsule: `expanded` repeats a name by its weight, `weights` keeps the numbers as given."""

    expanded: tuple[str, ...]
    weights: dict[str, int]
    mode: Mode

    @property
    def names(self) -> tuple[str, ...]:
        """Each queue once, in the order given."""
        return tuple(self.weights)


def parse_queues(entries: Iterable[str | Sequence[Any]]) -> QueueSpec:
    """Read `name`, `"name,weight"` or `[name, weight]`; a missing or odd weight is 0.

    All weights 0: strict. All 1: random. Anything else: weighted (core D6).
    """
    weights: dict[str, int] = {}
    expanded: list[str] = []
    for entry in entries:
        name, _, text = entry.partition(",") if isinstance(entry, str) else (entry[0], "", str((*entry, "")[1]))
        name = str(name).strip()
        if not name:
            raise ConfigurationError(f"a queue needs a name, got {entry!r}")
        number = re.match(r"\s*(\d+)", text)
        weights[name] = int(number.group(1)) if number else 0
        expanded.extend([name] * max(weights[name], 1))
    given = set(weights.values())
    mode: Mode = "strict" if given <= {0} else "random" if given == {1} else "weighted"
    if mode == "strict":
        expanded = list(weights)
    return QueueSpec(tuple(expanded), weights, mode)


class Capsule:
    """Threads of a process that serve a list of queues of their own.

    Made while the configuration is assembled, frozen with it. Its pools live in one mutable mapping: freezing forbids
    further settings but does not pin connections, so that a fork or a stop can drop them.
    """

    def __init__(self, name: str, config: Config, queues: Iterable[str | Sequence[Any]], concurrency: int) -> None:
        self.name = name
        self.config = config
        self.queues = parse_queues(queues)
        self.concurrency = concurrency
        self._server_middleware: Chain | None = None
        self._pools: dict[str, Redis] = {}
        self._mutex = threading.Lock()

    @property
    def server_middleware(self) -> Chain:
        """The chain around this capsule's runs: a copy of the configuration's, made on first use, then its own."""
        if self._server_middleware is None:
            self._server_middleware = self.config.server_middleware.copy_for(self)
        return self._server_middleware

    @property
    def redis(self) -> Redis:
        """The main pool: bookings, and what is given back at the end."""
        return self._pool("main", self.concurrency + SPARE_CONNECTIONS)

    @property
    def claims(self) -> Redis:
        """The dispatcher's pool: claims and acknowledgements. One attempt each, for the next pass is the next."""
        return self._pool("claims", INTERNAL_POOL, attempts=1)

    def reset_redis_pools(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self._mutex:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def fetch_order(self) -> list[str]:
        """The queues in the order of one pass: as declared, or shuffled with each first by its weight."""
        if self.queues.mode == "strict":
            return list(self.queues.expanded)
        shuffled = list(self.queues.expanded)
        random.shuffle(shuffled)
        return list(dict.fromkeys(shuffled))

    def _pool(self, purpose: str, size: int, **pool_options: int) -> Redis:
        pool = self._pools.get(purpose)
        if pool is None:
            with self._mutex:
                pool = self._pools.get(purpose) or Redis(
                    self.config.redis_options,
                    max(size, INTERNAL_POOL),
                    f"{self.name} {purpose}",
                    self.config.on_redis_retry,
                    **pool_options,
                )
                self._pools[purpose] = pool
        return pool


class Config:
    """Everything that one process knows about how to run. Assembled by one thread, then frozen."""

    def __init__(self, options: Options | None = None, redis: RedisOptions | None = None) -> None:
        self._frozen = False
        self.options = options or Options()
        self.redis_options = redis or RedisOptions(os.environ.get("REDIS_URL") or "redis://localhost:6379/0")
        self.hooks = Hooks()
        self.client_middleware: Chain = Chain(self)
        self.server_middleware: Chain = Chain(self)
        self.error_handlers: list[ErrorHandler] = [log_error]
        self.death_handlers: list[DeathHandler] = []
        self.recovery_callbacks: list[RecoveryCallback] = []  # for each job that a dead process left behind
        self.poison_callbacks: list[PoisonCallback] = []
        self.backtrace_cleaner: Callable[[list[str]], list[str]] = lambda lines: lines
        self.around_job: tuple[Callable[[], object], ...] = ()  # called before and after each run, in its thread
        self.at_thread_end: tuple[Callable[[], object], ...] = ()  # called by a thread of a worker when it ends
        self.before_fork: tuple[Callable[[], object], ...] = ()  # close what children must not inherit
        self.around_coroutine: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None = None
        self.defer: Deferral | None = None
        self.outage: Outage | None = None
        self.counters: list[Counter] = []
        self.off_loop: Callable[..., Awaitable[Any]] = asyncio.to_thread  # calls what an event loop waits for
        self.run_coroutine: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run  # awaits a job that is run inline
        self.fleet_size = 1  # processes under one parent, this one among them
        self.component_makers: list[Callable[[Any], tuple[Component, ...]]] = []
        self.capsules: dict[str, Capsule] = {}
        self._redis: Redis | None = None
        self._mutex = threading.Lock()

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_frozen", False) and not name.startswith("_"):
            raise ConfigurationError(f"the configuration is frozen since the worker started; {name} cannot change")
        super().__setattr__(name, value)

    @property
    def redis(self) -> Redis:
        """The pool for everything that is not a capsule's: pushes, heartbeat, scheduler, reads."""
        if self._redis is None:
            with self._mutex:
                self._redis = self._redis or Redis(self.redis_options, INTERNAL_POOL, "internal", self.on_redis_retry)
        return self._redis

    def capsule(self, name: str, queues: Iterable[str | Sequence[Any]], concurrency: int) -> Capsule:
        """Add a capsule, or replace the one of this name."""
        if self._frozen:
            raise ConfigurationError(f"the worker has started; the capsule {name!r} comes too late")
        if concurrency < 1:
            raise ConfigurationError(f"the capsule {name!r} needs a concurrency of at least 1, got {concurrency}")
        self.capsules[name] = Capsule(name, self, queues, concurrency)
        return self.capsules[name]

    def install(self, feature: Feature) -> None:
        """Plug a room in."""
        for middleware in feature.client_middleware:
            self.client_middleware.add(middleware)
        for middleware in feature.server_middleware:
            self.server_middleware.add(middleware)
        for event, handler in feature.hooks:
            self.hooks.on(event, handler)
        if feature.components is not None:
            self.component_makers.append(feature.components)

    def freeze(self) -> None:
        """Forbid further changes. Capsules exist from here on: `default` is added when there is none."""
        if not self.capsules:
            self.capsule("default", [DEFAULT_QUEUE], self.options.concurrency)
        self._frozen = True

    @property
    def frozen(self) -> bool:
        return self._frozen

    @property
    def total_concurrency(self) -> int:
        """Threads of all capsules together."""
        return sum(capsule.concurrency for capsule in self.capsules.values())

    def queue_names(self) -> list[str]:
        """The queues that this process serves, each once."""
        return list(dict.fromkeys(name for capsule in self.capsules.values() for name in capsule.queues.names))

    def reset_redis_pools(self) -> None:
        """Close every connection of this configuration; the next use opens new ones."""
        with self._mutex:
            pool, self._redis = self._redis, None
        if pool is not None:
            pool.close()
        for capsule in self.capsules.values():
            capsule.reset_redis_pools()

    def report(self, error: BaseException, context: dict[str, Any] | str) -> None:
        """Tell every error handler; one that fails is logged and the others still run."""
        details = {"context": context} if isinstance(context, str) else context
        for handler in self.error_handlers:
            try:
                handler(error, details)
            except Exception:  # a broken reporter must not hide the error nor stop the thread
                with suppress(Exception):  # it may have failed because nothing can be logged
                    log.exception("ERROR HANDLER THREW AN ERROR while it was told of %r", error)

    def count(self, name: str, amount: int = 1) -> None:
        """Tell every counter that something happened so many times; one that fails is reported."""
        for counter in self.counters:
            try:
                counter(name, amount)
            except Exception as error:  # an observer must not change the outcome
                self.report(error, f"counter of {name}")

    def on_redis_retry(self, report: RetryReport) -> None:
        """Called for every retry and every refused retry of a block of Redis commands."""
        log.debug("redis %s: attempt %d, retried %s: %s", report.pool, report.attempt, report.retried, report.error)


def log_error(error: BaseException, context: dict[str, Any]) -> None:
    """The default error handler: one line, and the traceback at debug level. While Redis is away: few lines."""
    if is_outage(error) and not _is_time_for_a_line():
        return
    where = context.get("context", "")
    payload = context.get("job") or {}
    named = " ".join(f"{key}={payload[key]}" for key in ("class", "jid", "queue") if key in payload)
    log.warning(
        "%s%s%s: %s",
        where,
        " " if named else "",
        named,
        describe(error),
        exc_info=error if log.isEnabledFor(10) else None,
    )


def _is_time_for_a_line() -> bool:
    """Has this thread said nothing about an outage lately?"""
    now = monotonic()
    if now - getattr(_outage_lines, "last", -OUTAGE_LINE_S) < OUTAGE_LINE_S:
        return False
    _outage_lines.last = now
    return True


def describe(error: BaseException) -> str:
    """An exception in one line, whatever its text does."""
    try:
        text = str(error)
    except Exception:  # the text of a user's exception is user code
        text = "!!! ERROR MESSAGE THREW AN ERROR !!!"
    return f"{type(error).__name__}: {text[:1000]}"


_default: Config | None = None
_factory: Callable[[], Config] = Config
_default_mutex = threading.Lock()


def default() -> Config:
    """The Config of callers that name none; made on first use."""
    global _default
    if _default is None:
        with _default_mutex:
            _default = _default or _factory()
    return _default


def set_default_factory(factory: Callable[[], Config]) -> None:
    """Say how the default Config is made: from settings, when Django is there. Drops one that was made already."""
    global _default, _factory
    with _default_mutex:
        _factory = factory
        _default = None


@dataclass(frozen=True)
class Running:
    """What a component may ask of the process that it runs in."""

    config: Config
    identity: str
    is_leader: Callable[[], bool] = field(default=lambda: False)
