"""Many jobs in few round trips."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.conftest import NOW, Stored
from tests.support.proxy import Proxy
from wurk_django import client as client_module
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob


class Only1:
    def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        return call_next() if payload["args"][0] == 1 else None


class ByParity:
    def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        payload["queue"] = "odd_queue" if payload["args"][0] % 2 else "even_queue"
        return call_next()


@pytest.mark.oracle("core:C1")
def test_stopped_jobs_are_none_in_their_places(client: Client, config: Config, stored: Stored) -> None:
    config.client_middleware.add(Only1)

    jids = client.push_bulk({"class": "Foo", "args": [[1], [2], [3]]})

    assert jids == [stored.one()["jid"], None, None]


@pytest.mark.oracle("core:C2")
def test_a_middleware_may_send_each_job_to_another_queue(client: Client, config: Config, stored: Stored) -> None:
    config.client_middleware.add(ByParity)

    client.push_bulk({"class": "Foo", "args": [[0], [1], [2]]})

    assert [job["args"] for job in stored.queue("even_queue")] == [[0], [2]]
    assert [job["args"] for job in stored.queue("odd_queue")] == [[1]]
    assert stored.names() == {b"even_queue", b"odd_queue"}


@pytest.mark.oracle("core:C3")
def test_1001_jobs_take_two_round_trips(proxy: Proxy, make_config: Any, stored: Stored) -> None:
    client = Client(make_config(proxy.url))

    jids = client.push_bulk({"class": "Foo", "args": [[n] for n in range(1001)]})

    assert len(set(jids)) == 1001
    assert [job["jid"] for job in stored.queue()] == jids
    assert proxy.count("LPUSH") == 2
    assert len({command.round_trip for command in proxy.commands if command.name in ("LPUSH", "SADD")}) == 2


def test_scheduled_jobs_take_a_round_trip_for_each_hundred(proxy: Proxy, make_config: Any) -> None:
    client = Client(make_config(proxy.url))

    client.push_bulk({"class": "Foo", "args": [[n] for n in range(201)], "at": 2e9})
    client.push_bulk({"class": "Foo", "args": [[n] for n in range(201)], "spread_interval": 10})
    client.push_bulk({"class": "Foo", "args": [[n] for n in range(201)], "at": 2e9, "batch_size": 300})

    assert proxy.count("ZADD") == 3 + 3 + 1


@pytest.mark.oracle("core:C4")
@pytest.mark.parametrize("kind", [list, tuple])
def test_each_job_has_its_own_time_over_all_slices(kind: Any, client: Client, stored: Stored) -> None:
    times = [2_000_000_000 + n for n in range(5)]

    client.push_bulk({"class": "Foo", "args": [[n] for n in range(5)], "at": kind(times), "batch_size": 2})

    assert [(job["args"], score) for job, score in stored.schedule()] == [([n], times[n]) for n in range(5)]


@pytest.mark.oracle("core:C5")
@pytest.mark.usefixtures("stopped_clock")
def test_jobs_are_spread_over_an_interval(client: Client, stored: Stored) -> None:
    client.push_bulk({"class": "Foo", "args": [[n] for n in range(40)], "spread_interval": 10})

    scores = [score for _, score in stored.schedule()]
    assert len(scores) == 40
    assert all(NOW <= score <= NOW + 10 for score in scores)
    assert len(set(scores)) > 30
    assert max(scores) - min(scores) > 5


@pytest.mark.usefixtures("stopped_clock")
def test_an_interval_below_five_seconds_counts_as_five(
    client: Client, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module.random, "random", lambda: 0.9)

    client.push_bulk({"class": "Foo", "args": [[1]], "spread_interval": 0.1})

    [(_, score)] = stored.schedule()
    assert score == NOW + 4.5


def test_a_single_time_is_that_of_every_job_and_is_never_relative(client: Client, stored: Stored) -> None:
    client.push_bulk({"class": "Foo", "args": [[1], [2]], "at": 60})

    assert [score for _, score in stored.schedule()] == [60.0, 60.0]


@pytest.mark.oracle("core:D3")
def test_a_jid_is_honoured_for_one_job_and_refused_for_more(client: Client, stored: Stored) -> None:
    assert client.push_bulk({"class": "Foo", "args": [[1]], "jid": "mine"}) == ["mine"]
    assert stored.one()["jid"] == "mine"

    for args in ([[1], [2]], []):
        with pytest.raises(InvalidJob, match="Foo: a jid can be given for a single job only"):
            client.push_bulk({"class": "Foo", "args": args, "jid": "mine"})
    assert len(stored.queue()) == 1


def test_without_arguments_there_is_nothing_to_do(client: Client, stored: Stored) -> None:
    assert client.push_bulk({"class": "Foo", "args": []}) == []
    assert client.push_bulk({"class": "Foo", "args": iter([])}) == []
    assert stored.keys() == []


def test_a_lazy_iterable_is_read_a_slice_at_a_time(client: Client, stored: Stored) -> None:
    seen: list[tuple[int, int]] = []

    def lazily() -> Iterator[list[int]]:
        for number in range(5):
            seen.append((number, len(stored.queue())))
            yield [number]

    jids = client.push_bulk({"class": "Foo", "args": lazily(), "batch_size": 2})

    assert len(jids) == 5
    assert seen == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4)]


def test_lazy_arguments_meet_a_list_of_times(client: Client, stored: Stored) -> None:
    client.push_bulk({"class": "Foo", "args": ([n] for n in range(3)), "at": [2e9, 3e9, 4e9]})

    assert [score for _, score in stored.schedule()] == [2e9, 3e9, 4e9]


def test_a_wrong_element_is_met_when_its_slice_is_reached(client: Client, stored: Stored) -> None:
    with pytest.raises(InvalidJob, match="Foo: bulk arguments must be lists, one for each job; got 5"):
        client.push_bulk({"class": "Foo", "args": [[1], [2], [3], 5], "batch_size": 2})

    assert [job["args"] for job in stored.queue()] == [[1], [2]]


def test_argument_lists_may_be_tuples(client: Client, stored: Stored) -> None:
    client.push_bulk({"class": "Foo", "args": [(1, 2), (3,)]})

    assert [job["args"] for job in stored.queue()] == [[1, 2], [3]]


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"at": []}, "`at` must be epoch seconds"),
        ({"at": "soon"}, "`at` must be epoch seconds"),
        ({"at": True}, "`at` must be epoch seconds"),
        ({"at": float("nan")}, "`at` must be epoch seconds"),
        ({"at": float("inf")}, "`at` must be epoch seconds"),
        ({"at": [2e9, "x"]}, "`at` must be epoch seconds"),
        ({"at": [2e9, float("nan")]}, "`at` must be epoch seconds"),
        ({"at": [2e9]}, "`at` has 1 times for 2 jobs"),
        ({"at": [2e9] * 3}, "`at` has 3 times for 2 jobs"),
        ({"at": 2e9, "spread_interval": 5}, "not both"),
        ({"spread_interval": 0}, "spread_interval must be a positive number"),
        ({"spread_interval": -5}, "spread_interval must be a positive number"),
        ({"spread_interval": "5"}, "spread_interval must be a positive number"),
        ({"spread_interval": float("inf")}, "spread_interval must be a positive number"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"args": "ab"}, "bulk args must be an iterable"),
        ({"args": {"a": 1}}, "bulk args must be an iterable"),
        ({"args": 5}, "bulk args must be an iterable"),
        ({"args": None}, "bulk args must be an iterable"),
        ({"class": 5}, "class must be a Job class or its name"),
    ],
)
def test_wrong_controls_are_refused_and_nothing_is_written(
    controls: dict[str, Any], message: str, client: Client, stored: Stored
) -> None:
    with pytest.raises(InvalidJob, match=message):
        client.push_bulk({"class": "Foo", "args": [[1], [2]], **controls})
    assert stored.keys() == []


@pytest.mark.parametrize("items", [None, [], "Foo", {"class": "Foo"}, {"args": [[1]]}])
def test_what_is_no_bulk_at_all_is_refused(items: Any, client: Client) -> None:
    with pytest.raises(InvalidJob, match="must be a dict with 'class' and 'args'"):
        client.push_bulk(items)


def test_every_job_is_checked_inside_the_chain(client: Client, config: Config, stored: Stored) -> None:
    class Convert:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            payload["args"] = [sorted(arg) if isinstance(arg, set) else arg for arg in payload["args"]]
            return call_next()

    config.client_middleware.add(Convert)
    client.push_bulk({"class": "Foo", "args": [[{3, 1}]]})
    with pytest.raises(InvalidJob, match=r"args\[0\]"):
        client.push_bulk({"class": "Foo", "args": [[object()]]})

    assert stored.one()["args"] == [[1, 3]]


def test_no_job_shares_a_changeable_field_with_the_next(client: Client, config: Config, stored: Stored) -> None:
    counter = itertools.count()

    class Mark:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            payload["mark"] = next(counter)
            return call_next()

    config.client_middleware.add(Mark)
    client.push_bulk({"class": "Foo", "args": [[1], [2]]})

    assert [job["mark"] for job in stored.queue()] == [0, 1]
