"""Which block of commands is run again, row by row of docs/spec/reliability.md §13.1."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import Answer, LoseReply, LoseRequest, named
from tests.support.proxy import Proxy
from wurk_django import connection
from wurk_django.connection import Redis, RetryReport, Session
from wurk_django.errors import DialFailed, PoolExhausted, RedisRefused, RedisUnavailable

#: A line that breaks while a command is under way: with the command, with its reply, or in silence.
BROKEN = {
    "request lost": LoseRequest(),
    "request reset": LoseRequest(reset=True),
    "request unanswered": LoseRequest(hang=True),
    "reply lost": LoseReply(),
    "reply reset": LoseReply(reset=True),
    "reply too late": LoseReply(hang=True),
}
MOVED_ON = ["READONLY You can't write against a read only replica.", "NOREPLICAS Not enough.", "UNBLOCKED client"]
REFUSALS = [
    "OOM no",
    "WRONGTYPE no",
    "MISCONF no",
    "LOADING no",
    "BUSY no",
    "NOPERM no",
    "ERR unknown command",
    "NOAUTH no",
]


def two_commands(session: Session) -> Any:
    """A block whose first command goes well."""
    session.execute("INCR", "first")
    return session.execute("INCR", "second")


def test_timeouts_are_those_of_the_specification() -> None:
    assert connection.CONNECT_TIMEOUT_S == 1.0
    assert connection.READ_TIMEOUT_S == 2.5
    assert connection.CHECKOUT_TIMEOUT_S == 1.0
    assert connection.ATTEMPTS == 3


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("how", ["refused", "reset", "silent"])
def test_a_failed_dial_is_tried_three_times(
    how: str, idempotent: bool, proxy: Proxy, through: Redis, reports: list[RetryReport], pauses: list[float],
    make_pool: Callable[..., Redis],
) -> None:  # fmt: skip
    pool = through
    if how == "refused":
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        pool = make_pool(f"redis://127.0.0.1:{port}", reports=reports)
    elif how == "reset":
        proxy.refuse = True
    else:
        proxy.black_hole()

    with pytest.raises(DialFailed):
        pool.execute("INCR", "n", idempotent=idempotent)

    assert [(report.attempt, report.retried, report.pool) for report in reports] == [
        (1, True, "test"), (2, True, "test"), (3, False, "test"),
    ]  # fmt: skip
    first, second = pauses
    assert 1.0 <= first <= 1.25
    assert 2.0 <= second <= 2.25


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_dial_that_works_again_runs_the_block_once(
    idempotent: bool, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    proxy.refuse = True
    monkeypatch.setattr(through, "_on_retry", lambda report: setattr(proxy, "refuse", report.attempt < 2))

    assert through.execute("INCR", "n", idempotent=idempotent) == 1

    assert len(pauses) == 2


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_line_is_an_error_of_a_default_block(
    broken: str, redis: redis_py.Redis, proxy: Proxy, through: Redis, reports: list[RetryReport], pauses: list[float]
) -> None:
    proxy.on(named("INCR"), BROKEN[broken])

    with pytest.raises(RedisUnavailable) as lost:
        through.execute("INCR", "n")

    assert not isinstance(lost.value, DialFailed)
    assert proxy.count("INCR") == 1
    assert int(redis.get("n") or 0) == (1 if broken.startswith("reply") else 0)
    assert [(report.attempt, report.retried) for report in reports] == [(1, False)]
    assert pauses == []


@pytest.mark.oracle("reliability:C4")
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_line_is_tried_three_times_for_an_idempotent_block(
    broken: str, proxy: Proxy, through: Redis, reports: list[RetryReport], pauses: list[float]
) -> None:
    proxy.on(named("SMEMBERS"), BROKEN[broken], times=2)

    assert through.execute("SMEMBERS", "paused", idempotent=True) == []

    assert proxy.count("SMEMBERS") == 3
    assert len({command.connection for command in proxy.commands if command.name == "SMEMBERS"}) == 3
    assert [report.retried for report in reports] == [True, True]
    assert len(pauses) == 2

    proxy.clear()
    proxy.on(named("SMEMBERS"), BROKEN[broken], times=None)
    with pytest.raises(RedisUnavailable):
        through.execute("SMEMBERS", "paused", idempotent=True)
    assert proxy.count("SMEMBERS") == 3


@pytest.mark.oracle("reliability:C3")
@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest(), *map(Answer, MOVED_ON)], ids=str)
def test_after_a_completed_command_nothing_of_a_default_block_is_repeated(
    fault: Any, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(lambda command: command[:2] == (b"INCR", b"second"), fault)

    with pytest.raises((RedisUnavailable, RedisRefused)):
        through.run(two_commands)

    assert int(redis.get("first")) == 1
    assert pauses == []


@pytest.mark.parametrize("fault", [LoseReply(), LoseRequest(), *map(Answer, MOVED_ON)], ids=str)
def test_an_idempotent_block_is_repeated_as_a_whole(
    fault: Any, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(lambda command: command[:2] == (b"INCR", b"second"), fault)

    through.run(two_commands, idempotent=True)

    assert int(redis.get("first")) == 2
    assert len(pauses) == 1


@pytest.mark.oracle("reliability:C5")
@pytest.mark.parametrize("reply", MOVED_ON)
@pytest.mark.parametrize("idempotent", [False, True])
def test_after_a_failover_the_first_command_is_sent_once_more_on_a_new_socket_at_once(
    reply: str, idempotent: bool, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    through.execute("PING")
    proxy.on(named("INCR"), Answer(reply))

    assert through.execute("INCR", "n", idempotent=idempotent) == 1

    used = [command.connection for command in proxy.commands if command.name == "INCR"]
    assert len(used) == len(set(used)) == 2
    assert pauses == [0.0]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_server_that_stays_read_only_is_asked_twice(
    idempotent: bool, proxy: Proxy, through: Redis, reports: list[RetryReport], pauses: list[float]
) -> None:
    proxy.on(named("INCR"), Answer("READONLY no"), times=None)

    with pytest.raises(RedisRefused) as refusal:
        through.execute("INCR", "n", idempotent=idempotent)

    assert refusal.value.code == "READONLY"
    assert proxy.count("INCR") == 2
    assert [report.retried for report in reports] == [True, False]


@pytest.mark.parametrize("reply", REFUSALS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_other_refusals_are_errors_at_once_and_cost_no_connection(
    reply: str, idempotent: bool, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(named("INCR"), Answer(reply))

    with pytest.raises(RedisRefused) as refusal:
        through.execute("INCR", "n", idempotent=idempotent)

    assert refusal.value.code == reply.split(maxsplit=1)[0]
    assert str(refusal.value).startswith(refusal.value.code)
    assert proxy.count("INCR") == 1
    assert pauses == []
    through.execute("PING")
    assert proxy.accepted == 1


@pytest.mark.oracle("reliability:C7")
def test_a_starved_checkout_is_tried_once_more_and_is_an_error_then(
    proxy: Proxy, make_pool: Callable[..., Redis], reports: list[RetryReport], pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(connection, "CHECKOUT_TIMEOUT_S", 0.05)
    pool = make_pool(proxy.url, size=1, reports=reports)

    def starve(session: Session) -> None:
        with pytest.raises(PoolExhausted, match="all 1 connections of the pool 'test' stayed busy"):
            pool.execute("INCR", "n", idempotent=True)

    pool.run(starve)

    assert [(report.attempt, report.retried) for report in reports] == [(1, True), (2, False)]
    [pause] = pauses
    assert 0.1 <= pause <= 0.3
    assert proxy.count("INCR") == 0
    assert pool.execute("INCR", "n") == 1


def test_an_exhausted_pool_within_a_block_repeats_nothing_that_the_block_has_done(
    redis: redis_py.Redis, pool: Redis, pauses: list[float]
) -> None:
    def block(session: Session) -> None:
        session.execute("INCR", "n")
        raise PoolExhausted

    with pytest.raises(PoolExhausted):
        pool.run(block)

    assert int(redis.get("n")) == 1
    assert pauses == []


def test_an_observer_that_fails_changes_nothing(
    redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(report: RetryReport) -> None:
        raise RuntimeError("observer")

    monkeypatch.setattr(through, "_on_retry", fail)
    proxy.on(named("GET"), LoseReply())

    assert through.execute("GET", "n", idempotent=True) is None


def test_an_error_of_the_block_itself_is_no_reason_to_run_it_again(redis: redis_py.Redis, pool: Redis) -> None:
    ran: list[int] = []

    def block(session: Session) -> None:
        ran.append(1)
        raise KeyError

    with pytest.raises(KeyError):
        pool.run(block, idempotent=True)
    assert ran == [1]
