"""The one place where Redis clients are made: options, pools, retries, fork safety. What runs on one: `session.py`.

redis-py re-sends commands on a broken connection by default, which doubles pushes and strands claims
(docs/spec/safety.md, fact 1). Here a command is sent once. A block of commands is run again only where a second
application changes nothing: when nothing was sent yet, or when the caller declares it idempotent
(docs/spec/reliability.md §13). Replies are bytes.
"""

from __future__ import annotations

import os
import random
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.driver_info import DriverInfo
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.retry import Retry

from .errors import ConfigurationError, DialFailed, PoolExhausted, RedisRefused, RedisUnavailable
from .session import Argument as Argument
from .session import Command as Command
from .session import Session as Session
from .session import pack as pack
from .session import refusal_of
from .version import VERSION

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 1.0
READ_TIMEOUT_S: Final = 2.5
CHECKOUT_TIMEOUT_S: Final = 1.0
ATTEMPTS: Final = 3
#: Replies of a server that is up and will not write just now; a fresh connection may reach the right one.
MOVED_ON: Final = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

#: Parameters of redis-py that say where a server is and who we are.
ADDRESS: Final = re.compile(r"host|port|db|username|password|path|credential_provider|ssl_\w+")
#: Parameters of redis-py that decide about retries, timeouts and replies: never taken from outside.
OURS: Final = frozenset(
    {
        "decode_responses",
        "health_check_interval",
        "max_connections",
        "maint_notifications_config",
        "protocol",
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "socket_connect_timeout",
        "socket_timeout",
        "timeout",
    }
)


# --- Where Redis is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RedisOptions:
    """Where Redis is and how to reach it. Plain data: makes connections, holds none.

    `url` is redis://, rediss:// or unix://, or a callable that gives one when the first connection is made (the
    embedded server starts then). With `sentinels`, host and port of the url are those of the current primary of
    `master`. `extra` are keywords of redis-py's connection classes.
    """

    url: str | Callable[[], str] = "redis://localhost:6379/0"
    sentinels: tuple[tuple[str, int], ...] = ()
    master: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    read_timeout_s: float = READ_TIMEOUT_S

    @classmethod
    def of_client(cls, client: Any) -> RedisOptions:
        """The options of a redis-py client or django-redis connection: its address and login, none of its retries."""
        pool = client.connection_pool
        address = {name: value for name, value in pool.connection_kwargs.items() if ADDRESS.fullmatch(name)}
        kind = pool.connection_class
        return cls("redis://", extra={**address, "connection_class": kind})

    def __repr__(self) -> str:
        return f"<Redis at {self.describe()}>"

    def describe(self) -> str:
        """The address for logs and messages: no password, no query."""
        if callable(self.url):
            return "the embedded server"
        return redact(self.url) if not self.sentinels else f"{self.master} by {len(self.sentinels)} sentinels"

    def dial(self, read_timeout_s: float | None = None) -> Connection:
        """Open a connection that never retries. Raises DialFailed, or RedisRefused when Redis refuses the login."""
        parameters = self._parameters()
        kind = parameters.pop("connection_class", Connection)
        if self.sentinels:
            parameters["host"], parameters["port"] = self._find_primary()
        connection = _open(kind, parameters, self.connect_timeout_s, read_timeout_s or self.read_timeout_s)
        if self.sentinels:
            self._require_primary(connection)
        return connection

    def _parameters(self) -> dict[str, Any]:
        url = self.url() if callable(self.url) else self.url
        try:
            parameters: dict[str, Any] = parse_url(url)
        except ValueError:  # its text may quote a part of the password
            raise ConfigurationError(
                f"the Redis URL {redact(url)} cannot be used; it must be redis://, rediss:// or unix://, with a number"
                " as port, and special characters of the password percent-encoded"
            ) from None
        return {name: value for name, value in {**parameters, **self.extra}.items() if name not in OURS}

    def _find_primary(self) -> tuple[str, int]:
        failures = []
        for host, port in self.sentinels:
            try:
                sentinel = _open(Connection, {"host": host, "port": port}, self.connect_timeout_s, self.read_timeout_s)
                try:
                    found = Session(sentinel).execute("SENTINEL", "get-master-addr-by-name", self.master)
                finally:
                    sentinel.disconnect()
            except (RedisUnavailable, RedisRefused) as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            if found:
                return found[0].decode(), int(found[1])
            failures.append(f"{host}:{port}: knows no {self.master!r}")
        raise DialFailed(f"no sentinel names the primary of {self.master!r} ({'; '.join(failures)})")

    def _require_primary(self, connection: Connection) -> None:
        role = Session(connection).execute("ROLE")
        if role[0] != b"master":
            connection.disconnect()
            raise DialFailed(f"the sentinels named a server that is {role[0].decode()}, not the primary")


def redact(url: str) -> str:
    """A Redis URL without login and query, for logs; also one whose password is not percent-encoded."""
    scheme, mark, rest = url.partition("://")
    _login, at, address = rest.rpartition("@")
    if not mark or address.count("[") != address.count("]"):
        return "(an address that cannot be read)"
    return f"{scheme}://{'REDACTED@' if at else ''}{re.split('[?#]', address, maxsplit=1)[0]}"


def _open(
    kind: type[Any], parameters: Mapping[str, Any], connect_timeout_s: float, read_timeout_s: float
) -> Connection:
    try:
        connection: Connection = kind(
            **parameters,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=connect_timeout_s,
            socket_timeout=read_timeout_s,
            driver_info=DriverInfo(name="wurk-django", lib_version=VERSION),
        )
    except TypeError as error:
        raise ConfigurationError(f"a Redis connection has no such option: {error}") from error
    try:
        connection.connect()
    except (AuthenticationError, BusyLoadingError, ResponseError) as error:
        raise refusal_of(error) from error
    except (RedisError, OSError) as error:
        raise DialFailed(f"cannot connect to Redis: {error}") from error
    return connection


# --- Pools ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RetryReport:
    """What the retry hook is told: the error, the attempt it ended (from 1), whether another follows, the pool."""

    error: Exception
    attempt: int
    retried: bool
    pool: str


_pools: weakref.WeakSet[Redis] = weakref.WeakSet()


class Redis:
    """A pool of connections to one Redis, and the blocks of commands that run on them.

    Shared by threads. A fork leaves the child an empty pool: the parent's sockets are closed there, never spoken on.
    `attempts` says how often a block is tried whose dial fails, or that is idempotent.
    """

    def __init__(
        self,
        options: RedisOptions,
        size: int = 10,
        name: str = "default",
        on_retry: Callable[[RetryReport], None] | None = None,
        *,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.options = options
        self.size = size
        self.name = name
        self._on_retry = on_retry
        self._attempts = attempts
        self._closed = False
        self._free: list[tuple[float, Connection]] = []  # the last one used is taken first
        self._opened: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._reset()
        _pools.add(self)

    def __repr__(self) -> str:
        return f"<Redis pool {self.name!r} of {self.size} at {self.options.describe()}>"

    def execute(self, *arguments: Argument, idempotent: bool = False) -> Any:
        """One command as a block of its own."""
        packed = pack(*arguments)
        return self.run(lambda session: session.execute_packed(packed), idempotent=idempotent)

    def pipeline(self, commands: Iterable[Command], *, idempotent: bool = False) -> list[Any]:
        """One pipeline as a block of its own; refusals stand in the place of replies."""
        listed = list(commands)
        return self.run(lambda session: session.pipeline(listed), idempotent=idempotent)

    def transaction(self, commands: Sequence[Command], *, idempotent: bool = False) -> list[Any]:
        """One MULTI … EXEC as a block of its own."""
        return self.run(lambda session: session.transaction(commands), idempotent=idempotent)

    def run(self, block: Callable[[Session], T], *, idempotent: bool = False) -> T:
        """Run a block of commands on one connection, and again where that is safe.

        Raises DialFailed, PoolExhausted, RedisUnavailable (after it, what was applied is unknown) or RedisRefused.
        """
        attempt = 0
        while True:
            attempt += 1
            session: Session | None = None
            slots = self._slots
            try:
                connection = self._checkout(slots)
                session = Session(connection)
                try:
                    return block(session)
                except RedisRefused as refusal:
                    if refusal.code in MOVED_ON:  # before anybody else can take it
                        connection.disconnect()
                    raise
                except BaseException:  # cut short, an unread reply may follow: never use it again
                    connection.disconnect()
                    raise
                finally:
                    self._checkin(connection, slots)
            except (RedisUnavailable, RedisRefused) as error:
                pause_s = self._pause_before_retry(error, attempt, session, idempotent)
                self._tell(RetryReport(error, attempt, pause_s is not None, self.name))
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def close(self) -> None:
        """Close every connection, in use or not. The pool is spent; whoever wants one makes a new one."""
        self._closed = True
        with self._mutex:
            connections = list(self._opened)
            self._free.clear()
        for connection in connections:
            connection.disconnect()

    def close_idle(self, idle_s: float) -> None:
        """Close free connections that nobody used for `idle_s` seconds."""
        limit = time.monotonic() - idle_s
        with self._mutex:
            stale = [connection for used_at, connection in self._free if used_at < limit]
            self._free[:] = [(used_at, connection) for used_at, connection in self._free if used_at >= limit]
        for connection in stale:
            connection.disconnect()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        # Not a semaphore: an interrupt of a hard stop would leave its inner lock taken, and the pool blocked for ever.
        self._slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(self.size):
            self._slots.put(None)
        self._free = []
        self._opened = weakref.WeakSet()

    def _forget_after_fork(self) -> None:
        inherited = list(self._opened)
        self._reset()
        for connection in inherited:
            connection.disconnect()  # redis-py sees the other pid and closes without a word to the server

    def _checkout(self, slots: SimpleQueue[None]) -> Connection:
        if self._closed:
            raise DialFailed(f"the pool {self.name!r} is closed")
        try:
            slots.get(timeout=CHECKOUT_TIMEOUT_S)
        except Empty:
            raise PoolExhausted(
                f"all {self.size} connections of the pool {self.name!r} stayed busy for {CHECKOUT_TIMEOUT_S} s"
            ) from None
        try:
            while True:
                with self._mutex:
                    found = self._free.pop()[1] if self._free else None
                if found is None:
                    break
                if is_usable(found):
                    return found
                found.disconnect()
            connection = self.options.dial()
            with self._mutex:
                self._opened.add(connection)
            return connection
        except BaseException:
            slots.put(None)
            raise

    def _checkin(self, connection: Connection, slots: SimpleQueue[None]) -> None:
        if connection.is_connected and not self._closed:
            with self._mutex:
                self._free.append((time.monotonic(), connection))
        else:
            connection.disconnect()
        slots.put(None)  # the one that was taken from: a fork in between has made new ones

    def _pause_before_retry(
        self, error: Exception, attempt: int, session: Session | None, idempotent: bool
    ) -> float | None:
        """Seconds to wait before the block is run again, or None when it must not be."""
        nothing_applied = session is None or session.completed == 0
        if isinstance(error, PoolExhausted):
            may = attempt == 1 and (nothing_applied or idempotent)
            return random.uniform(0.1, 0.3) if may else None  # noqa: S311  # spread, not secrecy
        if isinstance(error, RedisRefused):
            may = error.code in MOVED_ON and (nothing_applied or idempotent)
            return 0.0 if may and attempt == 1 else None
        never_sent = session is None and isinstance(error, DialFailed)
        if attempt < self._attempts and (never_sent or idempotent):
            return float(0.5 * 2**attempt + random.uniform(0, 0.25))  # noqa: S311
        return None

    def _tell(self, report: RetryReport) -> None:
        if self._on_retry is None:
            return
        with suppress(Exception):  # an observer must not change the outcome
            self._on_retry(report)


def is_usable(connection: Connection) -> bool:
    """False when the server closed the connection, or when an unread reply would answer the wrong question."""
    sock = socket_of(connection)
    if sock is None:
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return not poller.poll(0)


def socket_of(connection: Connection) -> Any:
    """The socket of a connection, for the dispatcher's blocking claims, which read header and body themselves."""
    return connection._sock


def close_free_connections() -> None:
    """Close what nobody uses just now, in every pool: before a fork, so that children inherit nothing."""
    for pool in list(_pools):
        pool.close_idle(0)


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._forget_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
