"""Jobs for later: what is relative, what is absolute, and what is due at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.conftest import NOW, Stored
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob
from wurk_django.jobs import Job, Setter


@pytest.fixture
def later(config: Config, stopped_clock: float) -> type[Job]:
    class Later(Job, name="Later", queue="low"):
        def perform(self, *args: Any) -> None: ...

    return Later


@pytest.mark.oracle("core:C6")
def test_the_past_is_now(later: type[Job], stored: Stored) -> None:
    later.perform_in(-300, 1)

    assert stored.schedule() == []
    assert stored.one("low")["args"] == [1]
    assert "at" not in stored.one("low")


@pytest.mark.oracle("core:C7")
def test_a_job_for_later_waits_in_the_schedule_and_its_queue_is_not_known_yet(later: type[Job], stored: Stored) -> None:
    jid = later.perform_in(600, 1)

    [(job, score)] = stored.schedule()
    assert score == NOW + 600
    assert job["jid"] == jid
    assert job["created_at"] == int(NOW * 1000)
    assert not {"at", "enqueued_at"} & job.keys()
    assert stored.keys() == [b"schedule"]


@pytest.mark.oracle("core:C8")
def test_from_a_billion_on_a_number_is_a_time(later: type[Job], stored: Stored) -> None:
    later.perform_at(2_000_000_000)
    later.perform_in(999_999_999)

    assert [score for _, score in stored.schedule()] == [2_000_000_000, NOW + 999_999_999]


@pytest.mark.parametrize("when", [0, 0.0, NOW, 1_000_000_000, timedelta(0), timedelta(seconds=-5)])
def test_only_what_is_strictly_later_than_now_is_scheduled(when: Any, later: type[Job], stored: Stored) -> None:
    later.perform_in(when)

    assert stored.schedule() == []
    assert len(stored.queue("low")) == 1


@pytest.mark.parametrize(
    ("when", "score"),
    [
        (timedelta(minutes=5), NOW + 300),
        (0.5, NOW + 0.5),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC).timestamp()),
        (datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5))), 1_893_438_000.0),
        (NOW + 0.001, NOW + 0.001),
    ],
)
@pytest.mark.parametrize("verb", ["perform_in", "perform_at"])
def test_spans_and_times_of_every_kind(verb: str, when: Any, score: float, later: type[Job], stored: Stored) -> None:
    getattr(later, verb)(when, "x")

    [(job, found)] = stored.schedule()
    assert found == score
    assert job["args"] == ["x"]


@pytest.mark.parametrize(
    "when",
    [None, "5", True, [5], float("nan"), float("inf"), 10**5000, complex(1), timedelta],
    ids=lambda when: str(type(when)),
)
def test_what_is_no_time_is_refused(when: Any, later: type[Job], stored: Stored, client: Client) -> None:
    for push in (
        lambda: later.perform_in(when),
        lambda: later.perform_at(when),
        lambda: client.enqueue_in(when, later),
    ):
        with pytest.raises(InvalidJob):
            push()
    assert stored.keys() == []


def test_a_naive_datetime_is_refused_where_the_site_uses_time_zones(
    later: type[Job], stored: Stored, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = datetime(2030, 1, 1)
    later.perform_at(naive)
    assert [score for _, score in stored.schedule()] == [naive.timestamp()]

    monkeypatch.setattr("wurk_django.config._default", make_config(naive_datetimes=False))
    with pytest.raises(InvalidJob, match="has no time zone"):
        later.perform_at(naive)


def test_a_raw_push_into_the_past_goes_to_the_schedule_all_the_same(client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": [], "at": 60})

    assert [score for _, score in stored.schedule()] == [60.0]
    assert stored.queue() == []


def test_the_score_is_the_number_that_was_given(client: Client, stored: Stored) -> None:
    for at in (2_000_000_000.123456, 0, -5.5, 1e15):
        client.push({"class": "Foo", "args": [at], "at": at})

    assert {job["args"][0]: score for job, score in stored.schedule()} == {
        2_000_000_000.123456: 2_000_000_000.123456,
        0: 0.0,
        -5.5: -5.5,
        1e15: 1e15,
    }


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(min_value=-1e12, max_value=1e12))
def test_a_score_keeps_every_bit_of_a_float(at: float, client: Client, stored: Stored, redis: Any) -> None:
    redis.flushall()
    client.push({"class": "Foo", "args": [], "at": at})

    assert [score for _, score in stored.schedule()] == [at]


Enqueue = Callable[[Client, Any], Any]


@pytest.mark.parametrize(
    ("enqueue", "queue", "score"),
    [
        (lambda client, cls: client.enqueue(cls, 1), "low", None),
        (lambda client, cls: client.enqueue_to("high", cls, 1), "high", None),
        (lambda client, cls: client.enqueue_in(5, cls, 1), "low", NOW + 5),
        (lambda client, cls: client.enqueue_in(2_000_000_000, cls, 1), "low", 2_000_000_000),
        (lambda client, cls: client.enqueue_in(-5, cls, 1), "low", None),
        (lambda client, cls: client.enqueue_in(NOW, cls, 1), "low", None),
        (lambda client, cls: client.enqueue_to_in("high", 5, cls, 1), "high", NOW + 5),
        (lambda client, cls: client.enqueue_to_in("high", 2_000_000_000, cls, 1), "high", 2_000_000_000),
        (lambda client, cls: client.enqueue_to_in("high", 0, cls, 1), "high", None),
    ],
)
def test_the_helpers_name_the_queue_and_the_time(
    enqueue: Enqueue, queue: str, score: float | None, later: type[Job], client: Client, stored: Stored
) -> None:
    jid = enqueue(client, later)

    if score is None:
        assert stored.schedule() == []
        job = stored.one(queue)
    else:
        [(job, found)] = stored.schedule()
        assert found == score
    assert (job["jid"], job["queue"], job["args"], job["class"]) == (jid, queue, [1], "Later")


def test_a_setter_that_computed_a_time_stays_scheduled(later: type[Job], stored: Stored) -> None:
    setter: Setter = later.set(queue="high")
    setter.perform_async(1)
    setter.perform_in(60, 2)
    setter.perform_async(3)

    assert [job["args"] for job in stored.queue("high")] == [[1]]
    assert [(job["args"], score) for job, score in stored.schedule()] == [([2], NOW + 60), ([3], NOW + 60)]


@pytest.mark.parametrize("options", [{"wait": 60}, {"wait": timedelta(minutes=1)}, {"wait_until": NOW + 60}])
def test_wait_and_wait_until_behave_like_perform_in(options: Any, later: type[Job], stored: Stored) -> None:
    setter = later.set(**options)
    setter.perform_async(1)
    setter.perform_bulk([[2]])

    assert sorted((job["args"], score) for job, score in stored.schedule()) == [([1], NOW + 60), ([2], NOW + 60)]
