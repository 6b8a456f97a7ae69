"""Strict arguments: what JSON would change on the way is refused by name."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import uuid
from typing import Any

import pytest
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from wurk_django import wire
from wurk_django.errors import InvalidJob


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


class Dict(dict[Any, Any]):
    pass


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("value", [1, 1.5, True, None, "a", [], {}, [[{"a": [None, {"b": 2}]}]]])
def test_plain_values_pass(value: Any) -> None:
    wire.check_arguments({"class": "C", "args": [value], "kwargs": {"a": value}})


@pytest.mark.parametrize(
    "value",
    [
        (1,), {1, 2}, b"a", bytearray(b"a"), decimal.Decimal(1), datetime.datetime(2026, 1, 1),
        datetime.date(2026, 1, 1), datetime.timedelta(1), uuid.UUID(int=1), SafeString("a"), gettext_lazy("a"),
        SimpleLazyObject(str), Colour.RED, Text("a"), Dict(), collections.OrderedDict(), collections.defaultdict(int),
        Broken(), object(), 1j, range(3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("place", ["args", "kwargs", "deep"])
def test_anything_else_is_refused_with_its_place_and_type(value: Any, place: str) -> None:
    payload = {
        "args": {"class": "Charge", "args": [1, value]},
        "kwargs": {"class": "Charge", "args": [], "kwargs": {"to": value}},
        "deep": {"class": "Charge", "args": [1, {"list": [0, {"when": value}]}]},
    }[place]
    path = {"args": r"args\[1\]", "kwargs": r"kwargs\.to", "deep": r"args\[1\]\.list\[1\]\.when"}[place]

    with pytest.raises(InvalidJob, match=rf"^Charge: {path} is .*{type(value).__name__}.*ON_COMPLEX_ARGUMENTS"):
        wire.check_arguments(payload)


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1, 2), Text("a")])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(InvalidJob, match=r"args\[0\] key"):
        wire.check_arguments({"class": "C", "args": [{key: 1}]})


def test_the_message_names_the_wrapped_class() -> None:
    with pytest.raises(InvalidJob, match=r"^Real: args\[0\]"):
        wire.check_arguments({"class": "Wrapper", "wrapped": "Real", "args": [object()]})


def test_only_the_arguments_are_looked_at() -> None:
    wire.check_arguments({"class": "C", "args": [], "meta": object(), "tags": ("a",)})
