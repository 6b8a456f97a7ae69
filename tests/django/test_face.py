"""The public face as a Django site uses it: what `@job` leaves alone, times, middleware from the settings, kwargs."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import redis as redis_py
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from tests.django.conftest import Configure
from wurk_django import Client, Job, current_job, job, registry
from wurk_django.errors import ConfigurationError, InvalidJob

Queued = Callable[..., list[dict[str, Any]]]
Scheduled = Callable[[], list[tuple[dict[str, Any], float]]]

SEEN: list[Any] = []


@job(name="face.greet", queue="mail")
def greet(user_id: int, lang: str = "en", *, loud: bool = False) -> str:
    """Greet somebody."""
    return f"{user_id} {lang} {loud}"


@job(name="face.fetch")
async def fetch(url: str) -> str:
    return url


class Charge(Job, name="face.charge", queue="critical", retry=3):
    def perform(self, *args: Any, **kwargs: Any) -> None:
        SEEN.append((args, kwargs))


@pytest.fixture(autouse=True)
def _configured(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test on its own Redis; jobs that it declares vanish with it."""
    monkeypatch.setattr(registry, "_jobs", dict(registry._jobs))
    SEEN.clear()
    configure()


# --- what is declared -------------------------------------------------------------------------------------------------


def test_a_decorated_function_is_still_a_function_to_everybody_who_asks() -> None:
    assert inspect.isfunction(greet)
    assert greet.__doc__ == "Greet somebody."
    assert list(inspect.signature(greet).parameters) == ["user_id", "lang", "loud"]
    assert pickle.loads(pickle.dumps(greet)) is greet
    assert greet(1, loud=True) == "1 en True"


def test_a_decorated_coroutine_function_is_still_one() -> None:
    assert inspect.iscoroutinefunction(fetch)
    assert async_to_sync(fetch)("here") == "here"  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [greet, fetch, Charge, Charge.set()], ids=["function", "async", "class", "setter"])
def test_every_verb_has_an_awaitable_twin_and_none_is_awaitable_itself(target: Any) -> None:
    for verb in ("perform_async", "perform_in", "perform_at", "perform_bulk", "perform_inline", "delay",
                 "perform_later"):  # fmt: skip
        assert not inspect.iscoroutinefunction(getattr(target, verb)), verb
        assert inspect.iscoroutinefunction(getattr(target, f"a{verb}")), verb


def test_a_name_that_another_job_has_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match=r"two jobs are named 'face.greet'.*name="):

        @job(name="face.greet")
        def other() -> None: ...

    with pytest.raises(ConfigurationError, match=r"two jobs are named 'face.charge'"):

        class Other(Job, name="face.charge"):
            def perform(self) -> None: ...

    assert registry.find("face.greet") is greet.job_class
    assert registry.find("face.charge") is Charge


def test_a_subclass_inherits_options_and_perform_but_not_the_name(queued: Queued) -> None:
    class Refund(Charge, retry=1):
        pass

    Refund.perform_async(1)
    (payload,) = queued("critical")
    assert payload["class"] == f"{__name__}.{Refund.__qualname__}"
    assert (payload["queue"], payload["retry"]) == ("critical", 1)
    assert Charge.options["retry"] == 3


# --- times ------------------------------------------------------------------------------------------------------------

Later = Callable[[Any, Any], Any]
LATER: dict[str, Later] = {
    "perform_in": lambda target, when: target.perform_in(when, 1),
    "perform_at": lambda target, when: target.perform_at(when, 1),
    "aperform_in": lambda target, when: async_to_sync(target.aperform_in)(when, 1),
    "aperform_at": lambda target, when: async_to_sync(target.aperform_at)(when, 1),
    "wait": lambda target, when: target.set(wait=when).perform_async(1),
    "wait_until": lambda target, when: target.set(wait_until=when).perform_async(1),
    "bulk": lambda target, when: target.set(wait_until=when).perform_bulk([[1]]),
}


@pytest.mark.parametrize("verb", LATER)
@pytest.mark.parametrize("target", [greet, Charge], ids=["function", "class"])
def test_a_naive_datetime_is_refused_by_every_verb_and_an_aware_one_is_its_moment(
    target: Any, verb: str, scheduled: Scheduled, redis: redis_py.Redis
) -> None:
    in_an_hour = timezone.localtime(timezone.now() + timedelta(hours=1), ZoneInfo("Asia/Kathmandu"))
    with pytest.raises(InvalidJob, match="USE_TZ"):
        LATER[verb](target, in_an_hour.replace(tzinfo=None))
    assert redis.keys() == []
    LATER[verb](target, in_an_hour)
    ((_payload, due),) = scheduled()
    assert due == in_an_hour.timestamp()


@pytest.mark.parametrize("verb", LATER)
def test_a_span_is_counted_from_now_and_a_large_number_is_a_time(verb: str, scheduled: Scheduled) -> None:
    before = time.time()
    LATER[verb](greet, timedelta(minutes=2))
    LATER[verb](greet, 120)
    LATER[verb](greet, 2_500_000_000)
    *spans, absolute = [due for _payload, due in scheduled()]
    assert all(before + 120 <= due <= time.time() + 120 for due in spans)
    assert absolute == 2_500_000_000


@pytest.mark.parametrize("verb", [verb for verb in LATER if verb != "bulk"])
@pytest.mark.parametrize("past", [datetime(2001, 1, 1, tzinfo=UTC), timedelta(hours=-1), -5, 1_000_000_001])
def test_the_past_is_now(verb: str, past: Any, queued: Queued, scheduled: Scheduled) -> None:
    LATER[verb](greet, past)
    assert scheduled() == []
    assert [payload["args"] for payload in queued("mail")] == [[1]]


def test_the_hour_that_a_clock_change_repeats_is_two_hours(scheduled: Scheduled) -> None:
    twice = datetime(2040, 10, 28, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    greet.perform_at(twice, 1)
    greet.perform_at(twice.replace(fold=1), 2)
    (_, first), (_, second) = scheduled()
    assert second - first == 3600


@pytest.mark.parametrize("verb", LATER)
@pytest.mark.parametrize("wrong", [date(2040, 1, 1), "2040-01-01", True, float("nan")], ids=str)
def test_what_is_no_time_is_refused(verb: str, wrong: Any, redis: redis_py.Redis) -> None:
    with pytest.raises(InvalidJob):
        LATER[verb](greet, wrong)
    assert redis.keys() == []


def test_set_names_queue_and_wait_for_one_push_and_for_many(scheduled: Scheduled) -> None:
    jid = greet.set(queue="low", wait=60).perform_async(1)
    jids = Charge.set(queue="low", wait=timedelta(seconds=60)).perform_bulk([[2], [3]])
    found = {payload["jid"]: payload for payload, _due in scheduled()}
    assert set(found) == {jid, *jids}
    assert {payload["queue"] for payload in found.values()} == {"low"}
    assert not any({"wait", "wait_until", "at"} & set(payload) for payload in found.values())


# --- inline -----------------------------------------------------------------------------------------------------------


class ClientSide:
    def call(self, job_class: Any, payload: dict[str, Any], queue: str, pool: Any, call_next: Any) -> Any:
        SEEN.append(("client", job_class, queue))
        payload["locale"] = "de"
        return call_next()


class ServerSide:
    def call(self, job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        SEEN.append(("server", type(job), payload["locale"]))
        return call_next()


@pytest.mark.parametrize("verb", ["perform_inline", "aperform_inline", "sync"])
def test_a_job_run_here_passes_the_middleware_of_the_settings(
    verb: str, configure: Configure, redis: redis_py.Redis
) -> None:
    configure(CLIENT_MIDDLEWARE=[f"{__name__}.ClientSide"], SERVER_MIDDLEWARE=[f"{__name__}.ServerSide"])
    if verb == "sync":
        assert Charge.set(sync=True).perform_async([1, 2], key={"a": [3]}) is None
    elif verb == "perform_inline":
        assert Charge.perform_inline([1, 2], key={"a": [3]}) is True
    else:
        assert async_to_sync(Charge.aperform_inline)([1, 2], key={"a": [3]}) is True
    client, server, ran = SEEN
    assert client == ("client", Charge, "critical")
    assert server == ("server", Charge, "de")
    assert ran == (([1, 2],), {"key": {"a": [3]}})
    assert redis.keys() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["aperform_inline", "sync"])
def test_a_job_run_here_from_async_code_is_inside_the_open_transaction(verb: str) -> None:
    @job(name="face.create")
    def create(name: str) -> None:
        SEEN.append(list(Group.objects.values_list("name", flat=True)))
        Group.objects.create(name=name)

    async def work() -> None:
        await (create.aperform_inline("new") if verb == "aperform_inline" else create.set(sync=True).adelay("new"))

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Group.objects.create(name="uncommitted")
        async_to_sync(work)()
        assert SEEN == [["uncommitted"]]
        raise ZeroDivisionError
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("caller", ["sync code", "a sync view under ASGI", "a sync job awaited inline", "async code"])
def test_an_async_job_run_here_is_inside_the_open_transaction(caller: str) -> None:
    @job(name="face.create_async")
    async def create(name: str) -> None:
        found = current_job()
        names = [group.name async for group in Group.objects.all()]
        SEEN.append((found and found.name, names))
        await Group.objects.acreate(name=name)

    @job(name="face.create_below")
    def below(name: str) -> None:
        create.perform_inline(name)

    callers: dict[str, Callable[[], Any]] = {
        "sync code": lambda: create.perform_inline("new"),
        "a sync view under ASGI": lambda: async_to_sync(sync_to_async(create.perform_inline))("new"),
        "a sync job awaited inline": lambda: async_to_sync(below.aperform_inline)("new"),
        "async code": lambda: async_to_sync(create.aperform_inline)("new"),
    }
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Group.objects.create(name="uncommitted")
        callers[caller]()
        ((name, names),) = SEEN
        assert (name, names) == ("face.create_async", ["uncommitted"])
        raise ZeroDivisionError
    assert not Group.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["perform_inline", "aperform_inline"])
def test_an_async_job_is_run_here_from_the_thread_of_the_orm_calls(verb: str) -> None:
    @job(name="face.ask_async")
    async def ask() -> None:
        SEEN.append(await sync_to_async(threading.get_ident)())

    async def serve() -> None:
        SEEN.append(await sync_to_async(threading.get_ident)())
        await (ask.aperform_inline() if verb == "aperform_inline" else sync_to_async(ask.perform_inline)())

    asyncio.run(serve())
    orm_thread, asked = SEEN
    assert asked == orm_thread


# --- the running job --------------------------------------------------------------------------------------------------


def told() -> tuple[Any, ...]:
    found = current_job()
    return () if found is None else (found.jid, found.name, found.queue, found.retry_count)


def test_code_below_a_job_knows_the_innermost_job_that_runs() -> None:
    def deep() -> Iterator[tuple[Any, ...]]:
        yield told()

    @job(name="face.inner", queue="low")
    def inner() -> None:
        SEEN.extend(deep())

    @job(name="face.outer")
    def outer() -> None:
        SEEN.append(told())
        inner.set(jid="b" * 24).perform_inline()
        with pytest.raises(ZeroDivisionError):
            fail.perform_inline()
        SEEN.append(told())

    @job(name="face.fail")
    def fail() -> None:
        raise ZeroDivisionError

    outer.set(jid="a" * 24, retry_count=2).perform_inline()
    running_outer = ("a" * 24, "face.outer", "default", 2)
    before, innermost, after = SEEN
    assert before == after == running_outer
    assert innermost == ("b" * 24, "face.inner", "low", None)
    assert told() == ()


def test_calling_a_job_as_a_function_makes_it_no_running_job() -> None:
    @job(name="face.asked")
    def asked() -> tuple[Any, ...]:
        return told()

    assert asked() == ()


# --- keyword arguments ------------------------------------------------------------------------------------------------

WITH_KWARGS: dict[str, Callable[[Any], Any]] = {
    "perform_async": lambda target: target.perform_async(1, loud=True),
    "delay": lambda target: target.delay(1, loud=True),
    "perform_later": lambda target: target.perform_later(1, loud=True),
    "perform_in": lambda target: target.perform_in(60, 1, loud=True),
    "perform_at": lambda target: target.perform_at(time.time() + 60, 1, loud=True),
    "aperform_async": lambda target: async_to_sync(target.aperform_async)(1, loud=True),
    "aperform_in": lambda target: async_to_sync(target.aperform_in)(60, 1, loud=True),
}


@pytest.mark.parametrize("verb", WITH_KWARGS)
def test_keyword_arguments_travel_beside_args_and_not_together_with_encrypt(
    verb: str, queued: Queued, scheduled: Scheduled, redis: redis_py.Redis
) -> None:
    class Sealed(Job, name="face.sealed", encrypt=True):
        def perform(self, user_id: int, *, loud: bool) -> None: ...

    for target in (Sealed, greet.set(encrypt=True)):
        with pytest.raises(InvalidJob, match="kwargs cannot be used together with encrypt"):
            WITH_KWARGS[verb](target)
    assert redis.keys() == []
    WITH_KWARGS[verb](greet)
    (payload,) = queued("mail") or [payload for payload, _due in scheduled()]
    assert (payload["args"], payload["kwargs"]) == ([1], {"loud": True})


def test_a_push_without_keyword_arguments_has_no_such_field(queued: Queued) -> None:
    greet.perform_async(1)
    Client().push({"class": greet.job_class, "args": [2], "kwargs": {}})
    assert ["kwargs" in payload for payload in queued("mail")] == [False, False]
