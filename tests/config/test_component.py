"""The loop that background parts share: ticks, errors, and an end that never doubles a wedged tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wurk_django.component import Periodic


@pytest.fixture
def make() -> Iterator[Callable[..., Periodic]]:
    made: list[Periodic] = []

    def build(tick: Callable[[], object], wait: Callable[[], float] = lambda: 0.001, **options: Any) -> Periodic:
        options.setdefault("report", lambda error, name: None)
        periodic = Periodic("test", tick, wait, options.pop("report"), **options)
        made.append(periodic)
        return periodic

    yield build
    for periodic in made:
        assert periodic.stop(5)


def wait_for(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "wurk-test"]


def test_it_ticks_again_and_again_in_one_named_thread_until_it_is_stopped(make: Callable[..., Periodic]) -> None:
    ticks: list[str] = []
    periodic = make(lambda: ticks.append(threading.current_thread().name))
    periodic.start()
    periodic.start()
    wait_for(lambda: len(ticks) >= 3)
    assert len(threads()) == 1
    assert threads()[0].daemon

    assert periodic.stop()

    count = len(ticks)
    assert set(ticks) == {"wurk-test"}
    assert threads() == []
    assert periodic.stopping
    assert len(ticks) == count


def test_it_waits_before_the_first_tick_and_a_first_wait_may_differ(make: Callable[..., Periodic]) -> None:
    ticks: list[int] = []
    waits: list[str] = []
    periodic = make(
        lambda: ticks.append(1),
        lambda: waits.append("later") or 0.001,
        first_wait=lambda: waits.append("first") or 0.0,
    )
    periodic.start()
    wait_for(lambda: len(ticks) >= 3)
    periodic.stop()

    assert waits[:2] == ["first", "later"]
    assert waits.count("first") == 1


def test_a_stop_wakes_the_sleeper_so_that_no_tick_follows(make: Callable[..., Periodic]) -> None:
    ticks: list[int] = []
    periodic = make(lambda: ticks.append(1), lambda: 3600)
    periodic.start()

    started = time.monotonic()
    assert periodic.stop()

    assert time.monotonic() - started < 2
    assert ticks == []


def test_an_error_of_a_tick_is_reported_and_the_loop_goes_on(make: Callable[..., Periodic]) -> None:
    reported: list[tuple[str, str]] = []
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 2:
            raise KeyError("boom")

    periodic = make(tick, report=lambda error, name: reported.append((repr(error), name)))
    periodic.start()
    wait_for(lambda: len(ticks) >= 4)

    assert reported == [("KeyError('boom')", "test")]


@pytest.mark.oracle("reliability:SW12")
def test_a_wedged_tick_is_left_behind_and_a_later_start_does_not_double_it(
    make: Callable[..., Periodic], caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    inside = threading.Event()

    def tick() -> None:
        inside.set()
        gate.wait(10)

    periodic = make(tick)
    periodic.start()
    inside.wait(5)

    assert periodic.stop(0.05) is False
    assert "is still busy after 0.05 s" in caplog.text
    periodic.start()
    assert len(threads()) == 1

    gate.set()
    assert periodic.stop()


def test_it_can_start_again_after_a_confirmed_end(make: Callable[..., Periodic]) -> None:
    ticks: list[int] = []
    periodic = make(lambda: ticks.append(1))
    periodic.start()
    wait_for(lambda: ticks)
    assert periodic.stop()
    ticks.clear()

    periodic.start()

    wait_for(lambda: ticks)
    assert not periodic.stopping


def test_a_tick_may_stop_its_own_loop(make: Callable[..., Periodic]) -> None:
    answers: list[bool] = []
    periodic: Periodic = make(lambda: answers.append(periodic.stop()))
    periodic.start()
    wait_for(lambda: answers and not threads())
    assert answers == [True]


def test_quiet_keeps_it_ticking(make: Callable[..., Periodic]) -> None:
    ticks: list[int] = []
    periodic = make(lambda: ticks.append(1))
    periodic.start()
    periodic.quiet()
    seen = len(ticks)
    wait_for(lambda: len(ticks) > seen + 2)


def test_stopping_what_never_started_is_no_error(make: Callable[..., Periodic]) -> None:
    assert make(lambda: None).stop()
