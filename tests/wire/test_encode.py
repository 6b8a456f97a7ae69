"""What a pushed job looks like as bytes, and what is refused before it becomes some."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wurk_django import wire
from wurk_django.errors import InvalidJob

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"))
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=30,
)


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def identical(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0, True is not 1, -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@given(json_values)
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    assert identical(wire.decode(wire.encode({"args": [value]})), {"args": [value]})


@given(json_values)
def test_the_rendering_is_compact_json_with_raw_text(value: Any) -> None:
    payload = {"class": "C", "args": [value]}
    expected = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    assert wire.encode(payload) == expected
    assert wire.encode_again(payload) == expected


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.dates()
    | st.decimals()
    | st.complex_numbers()
    | st.builds(Opaque)
    | st.builds(lambda: 10**5000),
    lambda inner: (
        st.lists(inner)
        | st.sets(st.integers())
        | st.tuples(inner)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.tuples(st.integers()), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_any_object_is_refused_or_read_back_as_what_json_makes_of_it(value: Any) -> None:
    try:
        raw = wire.encode({"class": "C", "args": [value]})
    except InvalidJob:
        return
    assert wire.decode(raw) == json.loads(json.dumps({"class": "C", "args": [value]}))


@given(anything)
def test_what_passes_the_strict_check_survives_unchanged(value: Any) -> None:
    payload = {"class": "C", "args": [value]}
    try:
        wire.check_arguments(payload)
        raw = wire.encode(payload)
    except InvalidJob:
        return
    assert identical(wire.decode(raw), payload)


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        ("é\u2028\u2029\x7f/", '"é\u2028\u2029\x7f/"'),
        ('"\\\b\f\n\r\t\x00\x1f', r'"\"\\\b\f\n\r\t\u0000\u001f"'),
        (1.0, "1.0"),
        (1, "1"),
        (10**30, "1" + "0" * 30),
        (1e16, "1e+16"),
        (-0.0, "-0.0"),
        ({"b": 1, "a": [True, None]}, '{"b":1,"a":[true,null]}'),
    ],
)
def test_text_is_escaped_and_numbers_are_written_as_ruby_would_read_them(value: Any, rendered: str) -> None:
    assert wire.encode({"args": [value]}) == f'{{"args":[{rendered}]}}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(InvalidJob, match="Charge: the arguments are not JSON"):
        wire.encode({"class": "Charge", "args": [{"deep": [value]}]})


@pytest.mark.oracle("safety:S-06")
def test_large_integers_keep_every_digit_and_too_large_ones_are_refused() -> None:
    longest = int("9" * 4300)
    assert wire.decode(wire.encode({"args": [longest, 2**64, -(2**63)]}))["args"] == [longest, 2**64, -(2**63)]
    with pytest.raises(InvalidJob):
        wire.encode({"class": "C", "args": [longest * 10]})


@pytest.mark.parametrize("value", ["a\ud800", {"\udfff": 1}])
def test_a_lone_surrogate_cannot_be_pushed(value: Any) -> None:
    with pytest.raises(InvalidJob, match="cannot be written as UTF-8"):
        wire.encode({"class": "C", "args": [value]})


@pytest.mark.oracle("safety:S-05")
@pytest.mark.parametrize("opening", [[], {}], ids=["arrays", "objects"])
def test_a_hundred_levels_can_be_pushed_and_one_more_cannot(opening: Any) -> None:
    def nested(levels: int) -> Any:
        value: Any = opening
        for _ in range(levels - 1):
            value = [value] if opening == [] else {"a": value}
        return value

    deepest = {"class": "C", "args": [nested(98)]}  # the job and its arguments are levels too
    assert wire.decode(wire.encode(deepest)) == deepest
    for levels in (99, 1000, 100_000):
        with pytest.raises(InvalidJob, match="nested deeper than 100 levels"):
            wire.encode({"class": "C", "args": [nested(levels)]})


def test_arguments_that_contain_themselves_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for check in (wire.encode, wire.check_arguments):
        with pytest.raises(InvalidJob, match=r"C: .*themselves|C: nested"):
            check({"class": "C", "args": loop})


@pytest.mark.oracle("safety:S-04")
def test_a_job_of_exactly_the_limit_can_be_pushed_and_a_byte_more_cannot() -> None:
    empty = len(wire.encode({"class": "C", "args": [""]}))
    largest = {"class": "C", "args": ["x" * (wire.MAX_JOB_BYTES - empty)]}
    assert len(wire.encode(largest)) == wire.MAX_JOB_BYTES == 1 << 20
    largest["args"][0] += "x"
    with pytest.raises(InvalidJob, match=r"1,048,577 bytes, the limit is 1,048,576"):
        wire.encode(largest)


def test_a_job_that_is_stored_again_is_never_refused_for_its_size_or_its_surrogates() -> None:
    raw = b'{"class":"C","args":["' + b"x" * wire.MAX_JOB_BYTES + rb'\ud800\\\udc00\ud83d\ude00"],"jid":"a"}'
    again = wire.encode_again(wire.decode_job(raw))
    assert wire.decode_job(again) == wire.decode_job(raw)
    assert again.endswith(rb"\ud800\\\udc00" + "\U0001f600".encode() + b'"],"jid":"a"}')


def test_without_the_encoder_in_c_the_bytes_are_the_same() -> None:
    program = (
        "import json.encoder, sys; json.encoder.c_make_encoder = None\n"
        "from wurk_django import wire\n"
        "sys.stdout.buffer.write(wire.encode({'args': ['é/', 1.0, 10**20, {'a': None}]}))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert out == '{"args":["é/",1.0,100000000000000000000,{"a":null}]}'.encode()
