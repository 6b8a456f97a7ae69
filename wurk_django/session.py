"""One connection in use: commands go out, replies and refusals come back. Nothing here opens one or sends twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from redis.connection import Connection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from .errors import RedisRefused, RedisUnavailable

_pack_fast: Callable[[tuple[Any, ...]], bytes] | None
try:
    from hiredis import pack_command as _pack_fast
except ImportError:  # the extra [fast] is not installed
    _pack_fast = None

Argument = bytes | str | int | float
Command = Sequence[Argument]

#: Why a server that answers will not write, and what to do about it. Nothing was applied.
WAYS_OUT: Final = {
    "OOM": "Redis is full: nothing was written. Let the workers drain the queues, or raise maxmemory.",
    "READONLY": "This Redis is a replica: nothing was written. Point WURK['REDIS'] at the primary, or name the"
    " sentinels there, so that a failover is followed.",
    "NOREPLICAS": "Redis has fewer replicas than min-replicas-to-write asks for: nothing was written. Bring the"
    " replicas back, or lower that number.",
    "MISCONF": "Redis cannot save to its disk: nothing was written. Look into its log and free its disk.",
    "LOADING": "Redis is reading its data from disk: nothing was written. Try again when it has finished.",
}


def pack(*arguments: Argument) -> bytes:
    """One command in the Redis protocol. Floats are written in their shortest form that reads back the same."""
    if _pack_fast is not None:
        return _pack_fast(arguments)
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        value = argument if type(argument) is bytes else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
    return b"".join(parts)


class Session:
    """The commands of one block on one connection. Lives for the block; used by one thread."""

    __slots__ = ("_connection", "completed")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.completed = 0  # round trips of this block; 0 means that Redis has applied nothing

    def execute(self, *arguments: Argument) -> Any:
        """Send one command, return its reply. Raises RedisRefused or RedisUnavailable."""
        return self.execute_packed(pack(*arguments))

    def execute_packed(self, packed: bytes) -> Any:
        """Send one command that is packed already, return its reply."""
        self._send(packed)
        reply = self._read()
        self.completed += 1
        return reply

    def pipeline(self, commands: Iterable[Command]) -> list[Any]:
        """Send commands together, not atomic. A refused one has its RedisRefused in the place of its reply."""
        packed = [pack(*command) for command in commands]
        return self.pipeline_packed(b"".join(packed), len(packed)) if packed else []

    def pipeline_packed(self, packed: bytes, count: int, replies: list[Any] | None = None) -> list[Any]:
        """Send `count` commands that are packed already; replies as `pipeline` gives them.

        A list that is passed as `replies` holds those that came, also when the line breaks before the last.
        """
        self._send(packed)
        if replies is None:
            replies = []
        for _ in range(count):
            try:
                replies.append(self._read())
            except RedisRefused as refusal:
                replies.append(refusal)
        if not all(isinstance(reply, RedisRefused) for reply in replies):
            self.completed += 1
        return replies

    def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """MULTI, the commands, EXEC in one round trip. Raises the first refusal; then none was applied.

        A command that fails inside EXEC (a wrong type) does not undo the others; its refusal is raised too.
        """
        replies = self.pipeline([("MULTI",), *commands, ("EXEC",)])
        for reply in (*replies[1:-1], replies[-1]):
            if isinstance(reply, RedisRefused):
                raise reply
        results: list[Any] = replies[-1]
        for result in results:
            if isinstance(result, ResponseError):
                raise refusal_of(result)
        return results

    def _send(self, packed: bytes) -> None:
        if not self._connection.is_connected:  # redis-py would dial again, behind the back of `Redis.run`
            raise RedisUnavailable("the connection was closed while it was in use")
        try:
            self._connection.send_packed_command([packed], check_health=False)
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis went away while a command was sent: {error}") from error

    def _read(self) -> Any:
        try:
            # LOADING would disconnect in the middle of a pipeline; after every other error `Redis.run` disconnects.
            return self._connection.read_response(disconnect_on_error=False)
        except (AuthenticationError, BusyLoadingError, ResponseError) as error:
            raise refusal_of(error) from error
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"Redis did not answer: {error}") from error


def refusal_of(error: RedisError) -> RedisRefused:
    """What Redis answered, as an error of ours: its code, its text, and for a server in trouble the way out."""
    code = getattr(error, "status_code", None)
    text = str(error)
    if code is None:
        first = text.partition(" ")[0]
        code = first if first.isupper() else "ERR"
    text = (text if text.startswith(code) else f"{code} {text}").strip()
    if code in WAYS_OUT:
        text = f"{text}{'' if text.endswith('.') else '.'} {WAYS_OUT[code]}"
    return RedisRefused(text, code)
