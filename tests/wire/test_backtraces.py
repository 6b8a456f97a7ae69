"""Stored backtraces: what we write, every form we read, and bombs."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import corpus
from wurk_django import wire

LINES = ["a.rb:1", "b.rb:2"]


@pytest.mark.oracle("core:P10")
def test_a_backtrace_is_packed_as_sidekiq_packs_it() -> None:
    assert wire.pack_backtrace(LINES) == "eJyLVkrUK0qyMlTSUUoCMYyUYgEzOAUL"
    assert wire.unpack_backtrace("eJyLVkrUK0qyMlTSUUoCMYyUYgEzOAUL") == LINES


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=50))
def test_a_packed_backtrace_unpacks_to_the_same_lines(lines: list[str]) -> None:
    packed = wire.pack_backtrace(lines)
    assert wire.unpack_backtrace(packed) == lines
    assert not set(packed) & set("\r\n ")


def test_a_line_that_is_no_utf_8_is_packed_all_the_same() -> None:
    assert wire.unpack_backtrace(wire.pack_backtrace(["caf\udce9.py:1"])) == ["caf\udce9.py:1"]


@pytest.mark.oracle("core:V2")
def test_base64_in_lines_of_60_as_sidekiq_6_wrote_it_is_read() -> None:
    lines = [f"/app/models/user.rb:{number}:in 'save'" for number in range(40)]
    packed = base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode()
    wrapped = "".join(packed[at : at + 60] + "\n" for at in range(0, len(packed), 60))
    assert wrapped.count("\n") > 2

    assert wire.unpack_backtrace(wrapped) == lines


def test_a_plain_array_is_read_too() -> None:
    assert wire.unpack_backtrace(LINES) == LINES
    assert wire.unpack_backtrace(["a", None, 5]) == ["a", "None", "5"]
    assert len(wire.unpack_backtrace(["x"] * 1000) or []) == wire.MAX_BACKTRACE_LINES


@pytest.mark.parametrize(
    "stored",
    [
        None, 5, True, {}, "", "§", "aGVsbG8=", "eJyLVkrUK0qyMlTSUU", "====", corpus.bomb("not json"),
        corpus.bomb("{}"), corpus.bomb('"a"'), corpus.bomb("[" * 5000),
        base64.b64encode(zlib.compress(b"\xff[")).decode(),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_none(stored: object) -> None:
    assert wire.unpack_backtrace(stored) is None


@given(st.text() | st.binary().map(lambda raw: base64.b64encode(zlib.compress(raw)).decode()))
def test_reading_a_backtrace_never_raises(stored: str) -> None:
    lines = wire.unpack_backtrace(stored)
    assert lines is None or all(isinstance(line, str) for line in lines)


@pytest.mark.oracle("safety:S-12")
def test_a_bomb_is_too_large_and_is_not_unfolded() -> None:
    bombs = [
        corpus.bomb(json.dumps(["a" * (64 << 20)])),
        corpus.bomb(json.dumps(["x"] * 501)),
        corpus.bomb("[" + '"",' * 340_000 + '""]'),
    ]
    tracemalloc.start()
    try:
        started = time.process_time()
        assert [wire.unpack_backtrace(bomb) for bomb in bombs] == [["(too large)"]] * 3
        assert time.process_time() - started < 0.3
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.oracle("safety:S-12")
def test_five_hundred_lines_and_a_mebibyte_are_read() -> None:
    lines = ["x" * 2000] * wire.MAX_BACKTRACE_LINES
    assert wire.unpack_backtrace(wire.pack_backtrace(lines)) == lines
    almost = ["x" * (wire.MAX_BACKTRACE_BYTES - 4)]
    assert wire.unpack_backtrace(wire.pack_backtrace(almost)) == almost
