"""What a job looks like on the wire: a dict and its JSON, times, backtraces, and what is refused.

JSON is the standard library's, rendered as Ruby renders it: compact, raw UTF-8, keys in the order of the dict. A
stored job is addressed by its bytes; nothing here is ever used to rebuild bytes that were read. Limits and traps:
docs/spec/core.md §1 and docs/spec/safety.md S-01 to S-13.
"""

from __future__ import annotations

import base64
import json
import json.encoder
import math
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, TypeGuard

from . import clock
from .errors import InvalidJob, MalformedPayload

Payload = dict[str, Any]  # stays a dict: fields that we do not know must survive the trip

MAX_JOB_BYTES: Final = 1 << 20  # a push above this is refused
MAX_CLAIM_BYTES: Final = 8 << 20  # a stored job above this goes to the dead set without being read
MAX_DEPTH: Final = 100  # Ruby's JSON neither writes nor reads deeper
MAX_QUEUE_NAME: Final = 200  # characters
MAX_RETRY_FOR_S: Final = 1_000_000_000  # above this it is a time, not a span
MAX_BACKTRACE_BYTES: Final = 1 << 20  # unfolded; the stored text is a compressed blob of unknown size
MAX_BACKTRACE_LINES: Final = 500
MAX_NUMBER: Final = 1e300
SECONDS_BELOW: Final = 1e10  # a smaller number is seconds, a larger one milliseconds

#: Options of a push that steer the client and never reach Redis.
CONTROL_KEYS: Final = frozenset(
    {
        "sync", "wait", "wait_until", "pool", "client_class", "batch_size", "spread_interval", "using", "on_commit",
        "wait_replicas",
    }
)  # fmt: skip


class KnownFields(TypedDict, total=False):
    """The fields that the core reads or writes (docs/spec/core.md §1.2). Any other key is kept untouched."""

    retry: bool | int
    queue: str
    args: list[Any]
    kwargs: dict[str, Any]
    jid: str
    created_at: int | float
    enqueued_at: int | float
    at: float
    retry_count: int
    failed_at: int | float
    retried_at: int | float
    discarded_at: int | float
    error_message: str
    error_class: str
    error_backtrace: str
    backtrace: bool | int
    retry_queue: str
    retry_for: int
    dead: bool
    tags: list[str]
    wrapped: str
    log_level: str


# --- JSON -----------------------------------------------------------------------------------------------------------


def _refuse_object(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


def _make_renderer() -> Callable[[Any], str]:
    """The standard library's C encoder, built once: `json.dumps` builds a new one for every call."""
    plain = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, default=_refuse_object
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    try:
        kept = make(None, _refuse_object, json.encoder.encode_basestring, None, ":", ",", False, False, False)
        kept({"probe": [1.5]}, 0)
    except TypeError:  # another interpreter's signature
        return plain.encode
    return lambda value: "".join(kept(value, 0))


_render: Final = _make_renderer()


def encode(payload: Mapping[str, Any], limit: int = MAX_JOB_BYTES) -> bytes:
    """The bytes of a job that is pushed.

    Raises InvalidJob for what JSON, Ruby or our limits do not allow: NaN, infinities, lone surrogates, integers
    beyond 4,300 digits, more than MAX_DEPTH levels, more than `limit` bytes, objects of other types.
    """
    try:
        raw = _render(payload).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start : error.end]
        raise InvalidJob(
            f"{name_of(payload)}: {found!r} cannot be written as UTF-8; send bytes as base64 text"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"{name_of(payload)}: the arguments are not JSON: {error}") from error
    except RecursionError:
        raise InvalidJob(f"{name_of(payload)}: nested deeper than {MAX_DEPTH} levels, or within itself") from None
    if len(raw) > limit:
        raise InvalidJob(
            f"{name_of(payload)}: the job has {len(raw):,} bytes, the limit is {limit:,};"
            " store the data elsewhere and pass its key"
        )
    if _maybe_deep(raw) and depth_of(payload) > MAX_DEPTH:
        raise InvalidJob(f"{name_of(payload)}: nested deeper than {MAX_DEPTH} levels")
    return raw


def encode_again(payload: Mapping[str, Any]) -> bytes:
    """The bytes of a job that was read from Redis and changes: a retry, a death.

    Never refuses for size, and writes a lone surrogate as the escape that it came from.
    """
    return _render(payload).encode("utf-8", "backslashreplace")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_scan_once: Final[Callable[[str, int], tuple[Any, int]]] = _decoder.scan_once  # type: ignore[attr-defined]  # set by its __init__


def decode(raw: bytes) -> Any:
    """The JSON value in these bytes. Raises MalformedPayload for anything that Ruby would not read the same way."""
    try:
        text = raw.decode()
        try:
            value, end = _scan_once(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):  # white space around the value, or garbage
            value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedPayload(f"not JSON: {str(error)[:200]}") from error
    if _maybe_deep(raw) and depth_of(value) > MAX_DEPTH:
        raise MalformedPayload(f"nested deeper than {MAX_DEPTH} levels")
    return value


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def decode_job(raw: bytes) -> Payload:
    """The job in these bytes, with the shape that a runner may trust: `class`, `args` and `jid` of their types.

    Raises MalformedPayload otherwise.
    """
    if len(raw) > MAX_CLAIM_BYTES:
        raise MalformedPayload(f"{len(raw):,} bytes, the limit is {MAX_CLAIM_BYTES:,}")
    value = decode(raw)
    if type(value) is not dict:
        raise MalformedPayload("not a JSON object")
    get = value.get
    if type(get("class")) is not str or not get("class"):
        raise MalformedPayload("`class` must be a name")
    if type(get("args")) is not list:
        raise MalformedPayload("`args` must be an array")
    jid = get("jid")
    if type(jid) is not str or not jid or _SURROGATE.search(jid):  # it names a key, so it must be UTF-8
        raise MalformedPayload("`jid` must be a text")
    return value


def _maybe_deep(raw: bytes) -> bool:
    """False when the text opens too few brackets to be too deep: two fast counts spare the walk."""
    return raw.count(b"[") + raw.count(b"{") > MAX_DEPTH


def depth_of(value: Any) -> int:
    """How many arrays and objects stand inside each other; counts no further than MAX_DEPTH + 1."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        level = [item for item in level if isinstance(item, list | tuple | dict)]
        if not level:
            return depth
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return MAX_DEPTH + 1


# --- Times ----------------------------------------------------------------------------------------------------------


def stamp(style: str) -> int | float:
    """Now, as a job field: whole milliseconds as Sidekiq 8 writes it, float seconds when `style` is "seconds"."""
    return clock.now_s() if style == "seconds" else clock.now_ms()


def read_time(value: object) -> float | None:
    """Seconds since the epoch out of any form that a Sidekiq ever wrote, or None.

    An integer or float below SECONDS_BELOW is seconds, above it milliseconds (core D1). Texts and booleans are none.
    """
    if type(value) is not int and type(value) is not float:
        return None
    if not -1e17 < value < 1e17:
        return None
    return value / 1000 if abs(value) >= SECONDS_BELOW else float(value)


# --- Backtraces -----------------------------------------------------------------------------------------------------


def pack_backtrace(lines: list[str]) -> str:
    """Base64 of deflated JSON, without line breaks; `lines` has the innermost frame first."""
    return base64.b64encode(zlib.compress(_render(lines).encode("utf-8", "backslashreplace"))).decode()


def unpack_backtrace(packed: object) -> list[str] | None:
    """The lines of a stored backtrace, in any form that a Sidekiq wrote; None when it cannot be read.

    Unfolds at most MAX_BACKTRACE_BYTES and MAX_BACKTRACE_LINES: 200 KB of it can hold 66 MB.
    """
    if isinstance(packed, list):
        return [str(line) for line in packed[:MAX_BACKTRACE_LINES]]
    if not isinstance(packed, str):
        return None
    try:
        unfold = zlib.decompressobj()
        text = unfold.decompress(base64.b64decode("".join(packed.split())), MAX_BACKTRACE_BYTES)
        if unfold.unconsumed_tail:
            return ["(too large)"]
        lines = decode(text)
    except (ValueError, zlib.error):
        return None
    if not isinstance(lines, list):
        return None
    if len(lines) > MAX_BACKTRACE_LINES:
        return ["(too large)"]
    return [str(line) for line in lines]


# --- What may be pushed -----------------------------------------------------------------------------------------------

_BAD_IN_QUEUE: Final = re.compile(r"[|\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_queue_name(name: object) -> bool:
    """May this name build a key? No pipes (they mark private lists), no control characters, no more than 200."""
    return isinstance(name, str) and 0 < len(name) <= MAX_QUEUE_NAME and not _BAD_IN_QUEUE.search(name)


def name_of(payload: Mapping[str, Any]) -> str:
    """The job's name for messages: the wrapped class if there is one."""
    return str(payload.get("wrapped") or payload.get("class") or "job")


def check_item(item: object) -> None:
    """Refuse what is not a job at all. Raises InvalidJob; nothing was written."""
    if not isinstance(item, dict) or "class" not in item or "args" not in item:
        raise InvalidJob(f"a job must be a dict with 'class' and 'args', got {shown(item)}")
    if not all(type(key) is str for key in item):
        raise InvalidJob(f"a job's keys must be strings, got {shown(list(item))}")


def check_fields(payload: Mapping[str, Any]) -> None:
    """Refuse fields that a worker, ours or Sidekiq's, could not use; those of the class's options count too."""
    name = payload["class"]
    if not isinstance(payload["args"], list | tuple):
        raise InvalidJob(f"{name}: args must be a list, got {shown(payload['args'])}")
    if payload.get("jid") and not isinstance(payload["jid"], str):
        raise InvalidJob(f"{name}: jid must be a text, got {shown(payload['jid'])}")
    if "at" in payload and not is_number(payload["at"]):
        raise InvalidJob(f"{name}: 'at' must be epoch seconds, got {shown(payload['at'])}")
    if payload.get("tags") and not isinstance(payload["tags"], list):
        raise InvalidJob(f"{name}: tags must be a list, got {shown(payload['tags'])}")
    if payload.get("kwargs") and payload.get("encrypt"):
        raise InvalidJob(f"{name}: kwargs cannot be used together with encrypt; pass positional arguments")
    retry_for = payload.get("retry_for")
    if not retry_for:
        return
    if not is_number(retry_for):
        raise InvalidJob(f"{name}: retry_for must be a number of seconds, got {shown(retry_for)}")
    if retry_for > MAX_RETRY_FOR_S:
        raise InvalidJob(f"{name}: retry_for must be a span in seconds, not a time; got {shown(retry_for)}")


def is_number(value: object) -> TypeGuard[int | float]:
    """An int or float that Redis can keep as a score: no bool, no NaN, nothing infinite or near it."""
    return (type(value) is int or type(value) is float) and -MAX_NUMBER < value < MAX_NUMBER


def shown(value: object) -> str:
    """A value in a message: cut, and whatever its `repr` does."""
    try:
        return f"{value!r:.200}"
    except Exception:  # a user's class, or an integer of too many digits
        return f"a {type(value).__qualname__}"


_PLAIN: Final = frozenset({int, float, bool, type(None), str})


def find_complex(value: Any, path: str) -> tuple[str, Any] | None:
    """The first value that JSON would change on the way, with its path: `args[0].when`. None when all are plain.

    Plain are exactly int, float, bool, None, str, list and dict with str keys; subclasses are not.
    """
    kind = type(value)
    if kind in _PLAIN:
        return None
    if kind is list:
        for index, item in enumerate(value):
            if type(item) not in _PLAIN and (found := find_complex(item, f"{path}[{index}]")):
                return found
        return None
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"{path} key", key
            if type(item) not in _PLAIN and (found := find_complex(item, f"{path}.{key}")):
                return found
        return None
    return path, value


def check_arguments(payload: Mapping[str, Any]) -> None:
    """Refuse arguments that would arrive as something else. Raises InvalidJob naming path, value and type."""
    try:
        found = find_complex(payload["args"], "args")
        if found is None and "kwargs" in payload:
            found = find_complex(payload["kwargs"], "kwargs")
    except RecursionError:
        raise InvalidJob(f"{name_of(payload)}: the arguments contain themselves or are nested too deep") from None
    if found is None:
        return
    path, value = found
    raise InvalidJob(
        f"{name_of(payload)}: {path} is {shown(value)} ({type(value).__module__}.{type(value).__qualname__}), which"
        " JSON would change on the way. Pass int, float, bool, None, str, list or dict with str keys; or set"
        ' WURK["ON_COMPLEX_ARGUMENTS"] to "warn" or "off"'
    )
