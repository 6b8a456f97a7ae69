"""When fetching tries again while Redis does not serve, and how much is said meanwhile."""

from __future__ import annotations

import logging
import threading

import pytest

from wurk_django import config
from wurk_django.config import log_error
from wurk_django.errors import RedisRefused, RedisUnavailable
from wurk_django.worker import downtime
from wurk_django.worker.downtime import FIRST_PAUSE_S, MAX_PAUSE_S, SERVED_S, Downtime


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(downtime, "monotonic", clock)
    monkeypatch.setattr(config, "monotonic", clock)
    return clock


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def down(told: list[str], clock: Clock) -> Downtime:
    return Downtime(lambda error, where: told.append(f"{where}: {error}"))


def test_it_tries_again_at_once_and_then_less_often(down: Downtime, clock: Clock) -> None:
    pauses = []
    for _ in range(8):
        pauses.append(down.meet(RedisUnavailable()))
        clock.now_s += pauses[-1]

    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S


def test_an_error_after_a_while_of_service_is_a_new_one(down: Downtime, clock: Clock) -> None:
    for _ in range(5):
        clock.now_s += down.meet(RedisUnavailable())
    clock.now_s += SERVED_S

    assert down.meet(RedisUnavailable()) == FIRST_PAUSE_S


def test_the_first_error_in_a_row_is_told(down: Downtime, told: list[str]) -> None:
    down.meet(RedisUnavailable("away"))
    down.meet(RedisUnavailable("still"))
    assert down.lasts
    down.end()
    assert not down.lasts
    down.meet(RedisUnavailable("again"))

    assert told == ["fetching: away", "fetching: again"]


def test_its_end_is_told_only_if_anybody_noticed(
    down: Downtime, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "wurk"):
        down.meet(RedisUnavailable())
        down.end()
        assert not caplog.records
        down.meet(RedisUnavailable())
        clock.now_s += 3
        down.end()

    assert [record.getMessage() for record in caplog.records] == ["Redis is back after 3.0 s"]


@pytest.mark.oracle("safety:R8")
def test_a_thread_logs_one_line_in_ten_seconds_while_redis_does_not_serve(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def lines_of_a_thread() -> None:
        for number in range(100):
            log_error(RedisUnavailable() if number % 2 else RedisRefused("LOADING", "LOADING"), {"context": "here"})
            clock.now_s += 0.25

    with caplog.at_level(logging.INFO, "wurk"):
        thread = threading.Thread(target=lines_of_a_thread)
        thread.start()
        thread.join()

    assert len(caplog.records) == 3, "in 25 seconds"


def test_other_errors_are_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "wurk"):
        for _ in range(3):
            log_error(RedisRefused("WRONGTYPE", "WRONGTYPE"), {"context": "here"})

    assert len(caplog.records) == 3
