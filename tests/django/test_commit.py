"""Pushes and transactions: what a commit sends, what a rollback takes back, and that nothing waits without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis as redis_py
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client as Browser
from django.test import override_settings
from django.urls import path

from tests.django.conftest import Configure
from wurk_django import Client, Job, job
from wurk_django.errors import InvalidJob

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

Queued = Callable[..., list[dict[str, Any]]]
Scheduled = Callable[[], list[tuple[dict[str, Any], float]]]


class Roll(Exception):
    """Rolls a transaction back."""


@job(name="commit.note")
def note(number: int) -> None:
    """Never runs here."""


class Charge(Job, name="commit.charge"):
    def perform(self, number: int) -> None:
        """Never runs here."""


@pytest.fixture(autouse=True)
def _configured(configure: Configure) -> None:
    configure()


@pytest.fixture
def anything(redis: redis_py.Redis) -> Callable[[], list[bytes]]:
    """Every key in Redis."""
    return lambda: sorted(redis.keys("*"))


PUSHES: dict[str, Callable[[], Any]] = {
    "perform_async": lambda: note.perform_async(1),
    "delay": lambda: note.delay(1),
    "perform_later": lambda: Charge.perform_later(1),
    "set": lambda: note.set(queue="low").perform_async(1),
    "perform_in": lambda: note.perform_in(60, 1),
    "perform_at": lambda: Charge.perform_at(time.time() + 60, 1),
    "wait": lambda: note.set(wait=60).perform_async(1),
    "perform_bulk": lambda: note.perform_bulk([[1], [2]]),
    "perform_bulk at": lambda: note.perform_bulk([[1], [2]], at=time.time() + 60),
    "Client.push": lambda: Client().push({"class": "Foreign", "args": []}),
    "Client.push_bulk": lambda: Client().push_bulk({"class": "Foreign", "args": [[1]]}),
    "Client.enqueue_to_in": lambda: Client().enqueue_to_in("low", 60, Charge, 1),
}


@pytest.mark.parametrize("verb", PUSHES)
def test_every_push_inside_atomic_leaves_with_the_commit(verb: str, anything: Callable[[], list[bytes]]) -> None:
    with transaction.atomic():
        PUSHES[verb]()
        assert anything() == []
    assert anything() != []


@pytest.mark.oracle("core:T6")
@pytest.mark.parametrize("verb", PUSHES)
def test_no_push_survives_the_rollback(verb: str, anything: Callable[[], list[bytes]]) -> None:
    with pytest.raises(Roll), transaction.atomic():
        PUSHES[verb]()
        raise Roll
    assert anything() == []
    PUSHES[verb]()
    assert anything() != []


def test_the_jid_is_known_at_once_and_is_the_one_that_is_sent(queued: Queued) -> None:
    with transaction.atomic():
        jid = note.perform_async(1)
        jids = note.perform_bulk([[2], [3]])
        group = Group.objects.create(name=str(jid))
    assert [payload["jid"] for payload in queued()] == [jid, *jids]
    assert Group.objects.get(name=queued()[0]["jid"]) == group


def test_jobs_of_a_transaction_leave_in_the_order_of_their_pushes(queued: Queued) -> None:
    with transaction.atomic():
        note.perform_async(1)
        note.perform_bulk([[2], [3]])
        with transaction.atomic():
            note.perform_async(4)
        note.perform_async(5)
    assert [payload["args"] for payload in queued()] == [[1], [2], [3], [4], [5]]


def test_a_scheduled_job_keeps_the_time_that_was_counted_from_its_push(scheduled: Scheduled) -> None:
    before = time.time()
    with transaction.atomic():
        note.perform_in(60, 1)
        after = time.time()
        time.sleep(0.05)
    ((_payload, due),) = scheduled()
    assert before + 60 <= due <= after + 60


def test_a_wrong_job_is_refused_inside_the_transaction_and_not_at_the_commit(anything: Callable[[], Any]) -> None:
    with transaction.atomic(), pytest.raises(InvalidJob):
        note.perform_async(object())
    assert anything() == []


def test_a_rolled_back_savepoint_takes_its_jobs_along_and_no_others(queued: Queued) -> None:
    with transaction.atomic():
        note.perform_async(1)
        with pytest.raises(Roll), transaction.atomic():
            note.perform_async(2)
            raise Roll
        with transaction.atomic():
            note.perform_async(3)
    assert [payload["args"] for payload in queued()] == [[1], [3]]


def test_an_inner_commit_sends_nothing_while_the_outer_transaction_is_open(anything: Callable[[], Any]) -> None:
    with pytest.raises(Roll), transaction.atomic():
        with transaction.atomic():
            note.perform_async(1)
        assert anything() == []
        raise Roll
    assert anything() == []


# --- several databases ------------------------------------------------------------------------------------------------


def test_with_two_open_transactions_the_last_commit_sends(queued: Queued) -> None:
    with transaction.atomic(using="other"):
        with transaction.atomic():
            note.perform_async(1)
        assert queued() == []
    assert len(queued()) == 1


@pytest.mark.parametrize(("outer", "inner"), [("default", "other"), ("other", "default")])
def test_a_rollback_of_either_transaction_drops_the_push(outer: str, inner: str, queued: Queued) -> None:
    with transaction.atomic(using=outer), pytest.raises(Roll), transaction.atomic(using=inner):
        note.perform_async(1)
        raise Roll
    with pytest.raises(Roll), transaction.atomic(using=outer):
        with transaction.atomic(using=inner):
            note.perform_async(2)
        raise Roll
    assert queued() == []


def test_using_names_the_one_database_whose_commit_sends(queued: Queued) -> None:
    with pytest.raises(Roll), transaction.atomic():
        with transaction.atomic(using="other"):
            note.set(using="other").perform_async(1)
            assert queued() == []
        assert len(queued()) == 1
        raise Roll
    assert len(queued()) == 1
    assert "using" not in queued()[0]


def test_using_a_database_without_a_transaction_sends_at_once(queued: Queued) -> None:
    with pytest.raises(Roll), transaction.atomic():
        note.set(using="other").perform_async(1)
        assert len(queued()) == 1
        raise Roll


def test_using_holds_for_bulk_pushes_too(queued: Queued) -> None:
    with transaction.atomic(), pytest.raises(Roll), transaction.atomic(using="other"):
        note.set(using="other").perform_bulk([[1], [2]])
        raise Roll
    assert queued() == []


# --- at once ----------------------------------------------------------------------------------------------------------


def test_on_commit_false_sends_at_once_and_a_rollback_changes_nothing(queued: Queued) -> None:
    with pytest.raises(Roll), transaction.atomic():
        note.set(on_commit=False).perform_async(1)
        note.set(on_commit=False).perform_bulk([[2]])
        assert len(queued()) == 2
        raise Roll
    assert "on_commit" not in queued()[0]


def test_a_class_may_say_that_it_does_not_wait(queued: Queued) -> None:
    @job(name="commit.audit", on_commit=False)
    def audit(number: int) -> None:
        """Never runs here."""

    with pytest.raises(Roll), transaction.atomic():
        audit.perform_async(1)
        audit.set(on_commit=True).perform_async(2)
        raise Roll
    assert [payload["args"] for payload in queued()] == [[1]]


def test_the_setting_switches_waiting_off_and_a_push_switches_it_on(configure: Configure, queued: Queued) -> None:
    configure(ENQUEUE_ON_COMMIT=False)
    with pytest.raises(Roll), transaction.atomic():
        note.perform_async(1)
        note.set(on_commit=True).perform_async(2)
        raise Roll
    assert [payload["args"] for payload in queued()] == [[1]]


@pytest.mark.oracle("reports:P25")
@pytest.mark.parametrize("place", ["here", "thread", "autocommit off", "event loop"])
def test_without_a_transaction_a_push_leaves_at_once(place: str, queued: Queued) -> None:
    if place == "thread":
        with transaction.atomic():  # of another thread
            thread = threading.Thread(target=note.perform_async, args=(1,))
            thread.start()
            thread.join()
            assert len(queued()) == 1
    elif place == "autocommit off":
        transaction.set_autocommit(False)
        try:
            note.perform_async(1)
            assert len(queued()) == 1
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
    elif place == "event loop":
        async_to_sync(note.aperform_async)(1)
    else:
        note.perform_async(1)
    assert len(queued()) == 1


def test_a_push_that_fails_at_the_commit_is_told_where_the_transaction_ends(
    configure: Configure, settings: Any
) -> None:
    from wurk_django import conf, config
    from wurk_django.errors import DialFailed

    settings.WURK = {"REDIS": "redis://127.0.0.1:1/0"}
    config.set_default_factory(conf.load)
    with pytest.raises(DialFailed), transaction.atomic():
        Group.objects.create(name="kept")
        assert note.perform_async(1)
    assert Group.objects.filter(name="kept").exists()


@pytest.mark.parametrize("verb", ["aperform_async", "adelay", "aperform_in", "aperform_bulk", "set"])
def test_async_code_inside_atomic_waits_as_well(verb: str, anything: Callable[[], Any]) -> None:
    pushes: dict[str, Callable[[], Any]] = {
        "aperform_async": lambda: note.aperform_async(1),
        "adelay": lambda: Charge.adelay(1),
        "aperform_in": lambda: Charge.aperform_in(60, 1),
        "aperform_bulk": lambda: note.aperform_bulk([[1]]),
        "set": lambda: note.set(queue="low").aperform_async(1),
    }

    async def work() -> Any:
        await Group.objects.acreate(name="from async code")
        return await pushes[verb]()

    with pytest.raises(Roll), transaction.atomic():
        async_to_sync(work)()
        raise Roll
    assert anything() == []
    assert not Group.objects.exists()
    async_to_sync(work)()
    assert anything() != []


def test_a_job_that_is_run_here_may_use_the_database_from_an_event_loop(queued: Queued) -> None:
    @job(name="commit.create")
    async def create(name: str) -> None:
        await Group.objects.acreate(name=name)

    async def work() -> None:
        assert await create.set(sync=True).aperform_async("sync") is None
        assert await create.aperform_inline("inline")

    async_to_sync(work)()
    assert set(Group.objects.values_list("name", flat=True)) == {"sync", "inline"}
    assert queued() == []


# --- a view -----------------------------------------------------------------------------------------------------------


def view(request: HttpRequest) -> HttpResponse:
    """Creates a row and pushes its key, on a database or other, with a savepoint that rolls back."""
    alias = request.GET.get("using", DEFAULT_DB_ALIAS)
    group = Group.objects.using(alias).create(name="view")
    note.perform_async(group.pk)
    with pytest.raises(Roll), transaction.atomic(using=alias):
        note.perform_async(-1)
        raise Roll
    seen_early = Client().config.redis.execute("EXISTS", "queue:default")
    if "fail" in request.GET:
        raise Roll
    return HttpResponse(str(seen_early))


urlpatterns = [path("view/", view)]


@pytest.mark.oracle("reports:P22")
@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_view_under_atomic_requests_sends_after_its_row_is_committed(
    alias: str, queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
    with override_settings(ROOT_URLCONF=__name__):
        browser = Browser(raise_request_exception=False)
        # given a view that works, then one that fails at its end
        answer = browser.get("/view/", {"using": alias})
        assert (answer.status_code, answer.content) == (200, b"0")
        (payload,) = queued()
        assert Group.objects.using(alias).filter(pk=payload["args"][0]).exists()
        # when
        assert browser.get("/view/", {"using": alias, "fail": "1"}).status_code == 500
    # then
    assert queued() == [payload]
    assert Group.objects.using(alias).count() == 1


# --- times ------------------------------------------------------------------------------------------------------------


def test_use_tz_decides_about_naive_datetimes(settings: Any, configure: Configure, scheduled: Scheduled) -> None:
    aware = datetime.now(UTC) + timedelta(hours=1)
    naive = datetime.now() + timedelta(hours=1)
    note.perform_at(aware, 1)
    with pytest.raises(InvalidJob, match="USE_TZ"):
        note.perform_at(naive, 2)
    settings.USE_TZ = False
    configure()
    note.perform_at(naive, 3)
    dues = {payload["args"][0]: due for payload, due in scheduled()}
    assert dues == {1: pytest.approx(aware.timestamp()), 3: pytest.approx(naive.timestamp())}
