"""Names: which may build a key, and what a job is called in messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wurk_django import keys, wire


@pytest.mark.parametrize(
    "name", ["default", "low-priority", "größe", "a:b.c/d e", "*", "q" * 200, "ü" * 200, "\U0001f600"]
)
def test_a_queue_may_have_any_ordinary_name(name: str) -> None:
    assert wire.is_queue_name(name)


@pytest.mark.oracle("safety:S-13")
@pytest.mark.parametrize(
    "name",
    [
        "", "a|b", "|", "default|host|1|0123456789ab|0", "a\nb", "a\rb", "a\x00", "\x1b[31m", "a\x7f",
        "a\x85b", "a\x9fb", "\ud800", "a\udfff", "q" * 201, None, 5, True, ["default"], {"a": 1}, b"default",
    ],
)  # fmt: skip
def test_a_name_that_could_forge_a_key_or_a_log_line_builds_none(name: object) -> None:
    assert not wire.is_queue_name(name)


@pytest.mark.oracle("safety:S-13")
@given(st.text(st.characters(), max_size=210))
def test_no_accepted_name_builds_a_private_list(name: str) -> None:
    if wire.is_queue_name(name):
        key = keys.queue(name)
        assert "|" not in key
        assert key.encode().decode() == key
        assert not any(ord(character) < 0x20 for character in key)


def test_a_private_list_names_its_queue_and_its_owner() -> None:
    assert keys.private_list("mail", "web-1", 42, "0123456789ab") == "queue:mail|web-1|42|0123456789ab|0"
    assert keys.private_list("a:b", "h", 1, "n", 3) == "queue:a:b|h|1|n|3"


def test_messages_name_the_wrapped_class_if_there_is_one() -> None:
    assert wire.name_of({"class": "Wrapper", "wrapped": "Real"}) == "Real"
    assert wire.name_of({"class": "Wrapper", "wrapped": None}) == "Wrapper"
    assert wire.name_of({}) == "job"


@pytest.mark.parametrize("value", [0, -1, 1.5, 2_000_000_000, 1e299, -(10**299)])
def test_a_number_that_redis_can_keep_as_a_score_is_one(value: float) -> None:
    assert wire.is_number(value)


@pytest.mark.parametrize("value", [True, None, "1", float("nan"), float("inf"), -float("inf"), 10**400, 1e300, [1]])
def test_what_redis_cannot_keep_as_a_score_is_no_number(value: object) -> None:
    assert not wire.is_number(value)


def test_a_value_is_shown_cut_and_whatever_its_repr_does() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert wire.shown("x" * 1000) == "'" + "x" * 199
    assert wire.shown(Broken()).startswith("a test_a_value_is_shown")
    assert wire.shown(10**5000) == "a int"
