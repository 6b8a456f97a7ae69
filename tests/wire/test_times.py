"""Times as any Sidekiq wrote them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wurk_django import clock, wire


@pytest.mark.oracle("core:V4")
@pytest.mark.parametrize("stored", [1796073053.16, 1796073053160])
def test_float_seconds_and_whole_milliseconds_are_the_same_instant(stored: float) -> None:
    assert wire.read_time(stored) == pytest.approx(1796073053.16, abs=1e-6)


@pytest.mark.oracle("core:V4")
def test_whole_seconds_of_a_sloppy_client_are_no_date_in_1970() -> None:
    assert wire.read_time(1796073053) == 1796073053.0
    assert wire.read_time(1796073053160.5) == pytest.approx(1796073053.1605)  # float milliseconds likewise


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [(0, 0.0), (9_999_999_999, 9_999_999_999.0), (10_000_000_000, 10_000_000.0), (-1.5, -1.5), (-2e10, -2e7), (1, 1.0)],
)
@pytest.mark.oracle("core:D1")
def test_below_ten_to_the_tenth_a_number_is_seconds_and_from_there_milliseconds(stored: float, seconds: float) -> None:
    read = wire.read_time(stored)
    assert read == seconds
    assert type(read) is float


@pytest.mark.parametrize(
    "stored", [None, True, False, "1796073053", "", [], {}, float("nan"), float("inf"), 10**400, -(10**17), 1e17, b"1"]
)
@pytest.mark.oracle("core:D1")
def test_what_is_no_time_reads_as_none(stored: object) -> None:
    assert wire.read_time(stored) is None


@given(st.from_type(object) | st.integers() | st.floats() | st.text())
def test_reading_a_time_never_raises(stored: Any) -> None:
    read = wire.read_time(stored)
    assert read is None or -1e14 <= read <= 1e14


@given(st.integers(min_value=1_000_000_000_000, max_value=9_000_000_000_000))
def test_what_we_write_reads_back_to_the_millisecond(now_ms: int) -> None:
    read = wire.read_time(now_ms)
    assert read is not None
    assert round(read * 1000) == now_ms


def test_stamps_are_whole_milliseconds_rounded_down_or_float_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_796_073_053_160_999_999)
    monkeypatch.setattr(time, "time", lambda: 1_796_073_053.16099)

    assert clock.now_ms() == wire.stamp("milliseconds") == 1_796_073_053_160
    assert type(wire.stamp("milliseconds")) is int
    assert clock.now_s() == wire.stamp("seconds") == 1_796_073_053.16099
