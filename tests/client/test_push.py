"""From a dict to Redis: one pipeline, what it holds, and what becomes of it when Redis fails."""

from __future__ import annotations

from typing import Any

import pytest
import redis as redis_py

from tests.client.conftest import Stored
from tests.support.faults import Answer, LoseReply, LoseRequest, anything, named
from tests.support.proxy import Proxy
from wurk_django import connection
from wurk_django.client import Client
from wurk_django.connection import RetryReport
from wurk_django.errors import DialFailed, RedisRefused, RedisUnavailable


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries are noted, not slept."""
    noted: list[float] = []

    class Clock:
        monotonic = staticmethod(connection.time.monotonic)
        sleep = staticmethod(noted.append)

    monkeypatch.setattr(connection, "time", Clock)
    return noted


@pytest.fixture
def through(proxy: Proxy, make_config: Any) -> Client:
    """A client whose line to Redis can be broken."""
    return Client(make_config(proxy.url))


def names_of(proxy: Proxy) -> list[tuple[str, ...]]:
    return [tuple(part.decode() for part in command[:2]) for command in proxy.commands if anything(command)]


def test_a_push_is_one_round_trip_of_two_commands(through: Client, proxy: Proxy) -> None:
    through.push({"class": "Foo", "args": []})

    assert names_of(proxy) == [("SADD", "queues"), ("LPUSH", "queue:default")]
    assert len({command.round_trip for command in proxy.commands if anything(command)}) == 1


def test_a_scheduled_push_is_one_command_and_touches_no_queue(through: Client, proxy: Proxy) -> None:
    through.push({"class": "Foo", "args": [], "at": 2_000_000_000})

    assert names_of(proxy) == [("ZADD", "schedule")]


def test_the_first_job_of_a_push_is_the_first_to_run(client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": [0]})
    client.push_bulk({"class": "Foo", "args": [[1], [2], [3]]})

    assert [job["args"] for job in stored.queue()] == [[0], [1], [2], [3]]


def test_jobs_for_several_queues_go_in_one_round_trip(client: Client, proxy: Proxy, through: Client) -> None:
    class Spread:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            payload["queue"] = f"q{payload['args'][0] % 2}"
            return call_next()

    through.config.client_middleware.add(Spread)
    through.push_bulk({"class": "Foo", "args": [[n] for n in range(4)]})

    assert [name[0] for name in names_of(proxy)] == ["SADD", "LPUSH", "LPUSH"]
    assert len({command.round_trip for command in proxy.commands if anything(command)}) == 1


@pytest.mark.oracle("reliability:C1")
def test_a_push_whose_connection_was_refused_once_arrives_exactly_once(
    through: Client, proxy: Proxy, stored: Stored, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.refuse = True
    reports: list[RetryReport] = []

    def heal(report: RetryReport) -> None:
        reports.append(report)
        proxy.refuse = False

    monkeypatch.setattr(through.config.redis, "_on_retry", heal)

    jid = through.push({"class": "Foo", "args": []})

    assert stored.one()["jid"] == jid
    [report] = reports
    assert isinstance(report.error, DialFailed)
    assert (report.attempt, report.retried) == (1, True)
    assert 1.0 <= pauses[0] <= 1.25


@pytest.mark.oracle("reliability:C2")
@pytest.mark.parametrize("lost", [LoseReply(), LoseReply(reset=True), LoseRequest(), LoseRequest(reset=True)], ids=str)
@pytest.mark.parametrize("command", ["SADD", "LPUSH"])
def test_a_push_whose_answer_was_lost_is_an_error_and_is_not_sent_again(
    command: str, lost: Any, through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    proxy.on(named(command), lost)

    with pytest.raises(RedisUnavailable):
        through.push({"class": "Foo", "args": []})

    assert proxy.count("LPUSH") <= 1
    assert len(stored.queue()) == (1 if command == "LPUSH" and isinstance(lost, LoseReply) else 0)
    assert pauses == []


@pytest.mark.oracle("reliability:C3")
def test_a_bulk_push_whose_second_slice_finds_no_connection_repeats_nothing(
    through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    def cut(*_: object) -> None:
        proxy.refuse = True
        proxy.reset_all()

    def slices() -> Any:
        yield [1]
        yield [2]
        cut()
        yield [3]
        yield [4]

    with pytest.raises(DialFailed):
        through.push_bulk({"class": "Foo", "args": slices(), "batch_size": 2})

    assert [job["args"] for job in stored.queue()] == [[1], [2]]
    assert proxy.count("LPUSH") == 1
    assert len(pauses) == 2


@pytest.mark.oracle("core:C11", "reliability:C5")
@pytest.mark.parametrize("code", ["READONLY", "NOREPLICAS", "UNBLOCKED"])
def test_a_push_that_a_replica_refused_is_sent_once_more_on_a_new_connection_at_once(
    code: str, through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    proxy.on(named("SADD", "LPUSH"), Answer(f"{code} You can't write against a read only replica."), times=2)

    jids = through.push_bulk({"class": "Foo", "args": [[n] for n in range(3)]})

    assert [job["jid"] for job in stored.queue()] == jids
    connections = {command.connection for command in proxy.commands if command.name == "LPUSH"}
    assert len(connections) == 2
    assert pauses == [0.0]


def test_a_push_that_is_refused_twice_is_an_error(
    through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    proxy.on(named("SADD", "LPUSH"), Answer("READONLY no"), times=None)

    with pytest.raises(RedisRefused) as refusal:
        through.push({"class": "Foo", "args": []})

    assert refusal.value.code == "READONLY"
    assert proxy.count("LPUSH") == 2
    assert stored.keys() == []


def test_a_push_that_was_applied_in_part_is_not_sent_again(
    through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    proxy.on(named("SADD"), Answer("READONLY no"))

    with pytest.raises(RedisRefused):
        through.push({"class": "Foo", "args": []})

    assert len(stored.queue()) == 1
    assert pauses == []


@pytest.mark.parametrize("code", ["OOM", "WRONGTYPE", "MISCONF", "LOADING", "BUSY"])
def test_any_other_refusal_is_an_error_at_once(
    code: str, through: Client, proxy: Proxy, stored: Stored, pauses: list[float]
) -> None:
    proxy.on(named("SADD", "LPUSH"), Answer(f"{code} no"), times=2)

    with pytest.raises(RedisRefused) as refusal:
        through.push({"class": "Foo", "args": []})

    assert refusal.value.code == code
    assert proxy.count("LPUSH") == 1
    assert stored.keys() == []


def test_a_queue_key_of_another_type_refuses_the_push(client: Client, redis: redis_py.Redis) -> None:
    redis.set("queue:default", "x")

    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        client.push({"class": "Foo", "args": []})
