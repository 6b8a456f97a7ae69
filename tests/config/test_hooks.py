"""Lifecycle events: order, errors, how often they fire."""

from __future__ import annotations

from typing import Any

import pytest

from wurk_django.errors import InvalidHook
from wurk_django.hooks import EVENTS, REPEATED, REVERSED, Hooks


@pytest.fixture
def reported() -> list[tuple[BaseException, str]]:
    return []


def filled(event: str, fired: list[int]) -> Hooks:
    hooks = Hooks()
    for number in range(3):
        hooks.on(event, lambda number=number: fired.append(number))
    return hooks


def test_the_events_are_those_of_sidekiq_and_two_of_ours() -> None:
    assert set(EVENTS) == {"startup", "quiet", "shutdown", "exit", "heartbeat", "beat", "fork", "leader"}
    assert set(Hooks().handlers) == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_winding_down_runs_in_reverse_and_all_else_in_order(event: str, reported: list[Any]) -> None:
    fired: list[int] = []
    filled(event, fired).fire(event, lambda *report: reported.append(report))
    assert fired == ([2, 1, 0] if event in REVERSED else [0, 1, 2])
    assert (event in REVERSED) == (event in ("quiet", "shutdown", "exit"))


@pytest.mark.parametrize("event", EVENTS)
def test_events_of_a_life_fire_once_and_those_of_every_day_again(event: str, reported: list[Any]) -> None:
    fired: list[int] = []
    hooks = filled(event, fired)
    for _ in range(2):
        hooks.fire(event, lambda *report: reported.append(report))
    assert len(fired) == (6 if event in REPEATED else 3)
    assert {"beat", "heartbeat"} <= REPEATED
    assert not {"startup", "quiet", "shutdown", "exit"} & REPEATED


def test_an_error_is_reported_and_the_others_still_run(reported: list[tuple[BaseException, str]]) -> None:
    fired: list[str] = []
    hooks = Hooks()
    error = KeyError("x")

    def fail() -> None:
        raise error

    hooks.on("shutdown", lambda: fired.append("first"))
    hooks.on("shutdown", fail)
    hooks.on("shutdown", lambda: fired.append("last"))
    hooks.fire("shutdown", lambda found, where: reported.append((found, where)))

    assert fired == ["last", "first"]
    assert reported == [(error, "shutdown handler")]


def test_an_error_may_go_on_to_the_caller_who_then_stops(reported: list[Any]) -> None:
    fired: list[int] = []
    hooks = Hooks()

    def fail() -> None:
        raise KeyError

    hooks.on("startup", fail)
    hooks.on("startup", lambda: fired.append(1))
    with pytest.raises(KeyError):
        hooks.fire("startup", lambda *report: reported.append(report), reraise=True)

    assert len(reported) == 1
    assert fired == []


@pytest.mark.parametrize("event", ["birthday", "", "Startup"])
def test_an_unknown_event_is_refused_with_the_list_of_events(event: str) -> None:
    with pytest.raises(InvalidHook, match="is not a lifecycle event; there are startup, quiet"):
        Hooks().on(event, lambda: None)


@pytest.mark.parametrize("handler", [None, 5, "name"])
def test_a_handler_must_be_callable(handler: Any) -> None:
    with pytest.raises(InvalidHook, match="must be callable"):
        Hooks().on("startup", handler)


def test_registering_gives_the_handler_back() -> None:
    def handler() -> None: ...

    assert Hooks().on("beat", handler) is handler


def test_handlers_of_one_configuration_are_not_those_of_another() -> None:
    Hooks().on("beat", lambda: None)
    assert Hooks().handlers["beat"] == []
