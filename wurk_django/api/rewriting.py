"""The bytes of a stored job that goes back to a queue: those that were read, but for the fields that changed."""

from __future__ import annotations

import json
import re
from typing import Any

from .. import wire
from ..client import Client
from ..config import Config
from ..errors import InvalidJob, MalformedPayload
from ..storage.sorted_sets import Move

_decoder = json.JSONDecoder()
_SPACE = re.compile(r"\s*")


def prepare_move(raw: bytes, config: Config, *, spare_attempt: bool) -> Move | None:
    """What is pushed in the place of this member: past the client middleware, with a new `enqueued_at`.

    `spare_attempt` lowers `retry_count` by one, so that a retry by hand uses up none. None: a middleware stopped it.
    Raises InvalidJob for what is no job.
    """
    before, payload = _read(raw), _read(raw)
    count = payload.get("retry_count")
    if spare_attempt and type(count) is int:
        payload["retry_count"] = count - 1
    item = {name: value for name, value in payload.items() if name not in wire.CONTROL_KEYS and name != "at"}
    prepared = Client(config, config.redis).prepare(item)
    if not prepared:
        return None
    prepared["enqueued_at"] = wire.stamp(config.options.wire_timestamps)
    return Move(raw, prepared["queue"], edit(raw, before, prepared))


def edit(raw: bytes, before: dict[str, Any], after: dict[str, Any]) -> bytes:
    """The bytes of `after`, made from those of `before`: only the values of fields that differ are written anew.

    So numbers, escapes and spaces of all other fields stay as they are. New fields come last. A field that is gone
    costs that: everything is written anew.
    """
    if before.keys() - after.keys():
        return wire.encode_again(after)
    text = raw.decode()
    places, end = _places(text)
    pieces = {places[name]: _value(after[name]) for name in before if _value(before[name]) != _value(after[name])}
    fresh = {name: value for name, value in after.items() if name not in before}
    if fresh:
        pieces[end, end] = (b"," if before else b"") + wire.encode_again(fresh)[1:-1]
    parts, at = [], 0
    for (start, stop), piece in sorted(pieces.items()):
        parts += [text[at:start].encode(), piece]
        at = stop
    return b"".join([*parts, text[at:].encode()])


def _read(raw: bytes) -> dict[str, Any]:
    try:
        return wire.decode_job(raw)
    except MalformedPayload as malformed:
        raise InvalidJob(f"this is no job, it can only be deleted or killed: {malformed}") from malformed


def _value(value: object) -> bytes:
    return wire.encode_again({"": value})[4:-1]


def _places(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the value of each field stands, the last one of a repeated name; and where the object ends."""
    places: dict[str, tuple[int, int]] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        name, at = _decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, stop = _decoder.raw_decode(text, start)
        places[name] = start, stop
        at = _skip(text, stop)
    return places, at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
