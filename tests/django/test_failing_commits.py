"""Pushes that fail when the commit sends them: who is told, and that one takes no other down with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from tests.django.conftest import Configure
from tests.support.faults import Answer, LoseRequest, touching
from tests.support.proxy import Proxy
from wurk_django import connection, job
from wurk_django.buffer import PushBuffer
from wurk_django.config import Config
from wurk_django.errors import RedisRefused, RedisUnavailable

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

Queued = Callable[..., list[dict[str, Any]]]


@job(name="commit.fails")
def note(number: int) -> None:
    """Never runs here."""


def push(number: int, queue: str = "default", **options: Any) -> str | None:
    return note.set(queue=queue, **options).perform_async(number)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        monotonic = staticmethod(time.monotonic)
        sleep = staticmethod(lambda _: None)

    monkeypatch.setattr(connection, "time", Clock)


@pytest.fixture
def through(proxy: Proxy, configure: Configure) -> Config:
    """A configuration whose line to Redis can be broken."""
    return configure(REDIS=proxy.url)


@pytest.fixture
def keeping(proxy: Proxy, configure: Configure) -> Iterator[PushBuffer]:
    """The same with a buffer for outages."""
    config = configure(REDIS=proxy.url, RELIABLE_PUSH=True, RELIABLE_PUSH_DRAIN_INTERVAL=0)
    assert isinstance(config.outage, PushBuffer)
    yield config.outage
    config.outage._entries.clear()


@pytest.fixture
def told(through: Config) -> list[BaseException]:
    """What the error handlers heard."""
    errors: list[BaseException] = []
    through.error_handlers[:] = [lambda error, _context: errors.append(error)]
    return errors


def numbers(queued: Queued, queue: str = "default") -> list[int]:
    return [payload["args"][0] for payload in queued(queue)]


def test_the_error_of_a_push_surfaces_where_the_transaction_was_committed(through: Config, proxy: Proxy) -> None:
    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(1, "bad")


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_push_that_fails_keeps_no_other_of_the_transaction_from_being_sent(
    bad: int, through: Config, proxy: Proxy, queued: Queued, told: list[BaseException]
) -> None:
    proxy.on(touching("queue:bad"), Answer("WRONGTYPE no"))
    with pytest.raises(RedisRefused), transaction.atomic():
        for number in range(3):
            push(number, "bad" if number == bad else "default")

    assert numbers(queued) == [number for number in range(3) if number != bad]
    assert len(told) == (0 if bad == 2 else 1)  # what is not raised at once is told at once


def test_a_push_that_fails_keeps_no_hook_before_the_last_push_from_running(
    through: Config, proxy: Proxy, queued: Queued
) -> None:
    ran: list[int] = []
    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(0, "bad")
        transaction.on_commit(lambda: ran.append(1))
        push(2)
    assert ran == [1]
    assert numbers(queued) == [2]


def test_the_first_error_surfaces_and_all_are_reported(
    through: Config, proxy: Proxy, told: list[BaseException]
) -> None:
    proxy.on(touching("queue:bad"), LoseRequest())
    proxy.on(touching("queue:worse"), Answer("WRONGTYPE no"))
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(0, "bad")
        push(1, "worse")
    assert [type(error) for error in told] == [RedisUnavailable, RedisRefused]


def test_pushes_that_were_rolled_back_hold_up_no_error(through: Config, proxy: Proxy, queued: Queued) -> None:
    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(0, "bad")
        try:
            with transaction.atomic():
                push(1)
                raise KeyError
        except KeyError:
            pass
    assert queued() == []


def test_an_error_of_one_transaction_is_none_of_the_next(
    through: Config, proxy: Proxy, queued: Queued, told: list[BaseException]
) -> None:
    def fail() -> None:
        raise KeyError

    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(KeyError) as kept_alive, transaction.atomic():
        push(0, "bad")
        transaction.on_commit(fail)
        push(1)

    with transaction.atomic():
        push(2)

    assert numbers(queued) == [2]
    assert [type(error) for error in told] == [RedisUnavailable]
    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(3, "bad")
    assert kept_alive.value is not None


def test_two_databases_have_their_pushes_sent_across_an_error(through: Config, proxy: Proxy, queued: Queued) -> None:
    for alias in ("default", "other"):
        connections[alias].ensure_connection()
    proxy.on(touching("queue:bad"), LoseRequest())
    with pytest.raises(RedisUnavailable), transaction.atomic(using="default"), transaction.atomic(using="other"):
        push(0, "bad")
        push(1)
        push(2, using="default")
    assert sorted(numbers(queued)) == [1, 2]


def test_an_outage_at_the_commit_keeps_the_jobs_and_raises_nothing(
    keeping: PushBuffer, proxy: Proxy, queued: Queued
) -> None:
    ran: list[int] = []
    with transaction.atomic():
        jids = [push(number) for number in range(2)]
        transaction.on_commit(lambda: ran.append(1))
        jids += note.perform_bulk([[2], [3]])
        proxy.refuse = True
        proxy.reset_all()

    assert ran == [1]
    assert len(keeping) == 4
    proxy.refuse = False
    push(4)
    assert [payload["jid"] for payload in queued()][:4] == jids
    assert numbers(queued) == [0, 1, 2, 3, 4]


def test_a_rollback_keeps_nothing_in_the_buffer(keeping: PushBuffer, proxy: Proxy) -> None:
    proxy.refuse = True
    with pytest.raises(KeyError), transaction.atomic():
        push(1)
        raise KeyError
    assert len(keeping) == 0


def test_a_job_that_may_not_be_kept_surfaces_at_the_commit_and_the_others_are_kept(
    keeping: PushBuffer, proxy: Proxy
) -> None:
    with pytest.raises(RedisUnavailable), transaction.atomic():
        push(0, unique_for=60)
        push(1)
        proxy.refuse = True
        proxy.reset_all()
    assert len(keeping) == 1
