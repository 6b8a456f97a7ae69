"""The verbs of a job class and of a decorated function, and the options behind them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.client.conftest import Stored
from wurk_django import current_job, job, registry
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError, InvalidJob
from wurk_django.jobs import Job, Setter, instantiate

pytestmark = pytest.mark.usefixtures("config")


def declare() -> Any:
    @job(name="Mailer", queue="mail", retry=5)
    def send(user: int, lang: str = "en") -> str:
        return f"{user} {lang}"

    return send


def test_a_decorated_function_stays_the_plain_function(stored: Stored) -> None:
    send = declare()

    assert send(42) == "42 en"
    assert send.__name__ == "send"
    assert stored.keys() == []


def test_without_a_name_a_job_is_called_by_module_and_qualified_name(stored: Stored) -> None:
    @job
    def plain() -> None: ...

    plain.perform_async()

    assert (
        stored.one()["class"]
        == f"{__name__}.test_without_a_name_a_job_is_called_by_module_and_qualified_name.<locals>.plain"
    )
    assert registry.find(stored.one()["class"]) is plain.job_class


VERBS: dict[str, Any] = {
    "perform_async": lambda target: target.perform_async(42),
    "delay": lambda target: target.delay(42),
    "perform_later": lambda target: target.perform_later(42),
    "aperform_async": lambda target: asyncio.run(target.aperform_async(42)),
    "adelay": lambda target: asyncio.run(target.adelay(42)),
    "aperform_later": lambda target: asyncio.run(target.aperform_later(42)),
}
LATER: dict[str, Any] = {
    "perform_in": lambda target: target.perform_in(600, 42),
    "perform_at": lambda target: target.perform_at(time.time() + 600, 42),
    "aperform_in": lambda target: asyncio.run(target.aperform_in(600, 42)),
    "aperform_at": lambda target: asyncio.run(target.aperform_at(timedelta(minutes=10), 42)),
}
BULK: dict[str, Any] = {
    "perform_bulk": lambda target: target.perform_bulk([[42]]),
    "aperform_bulk": lambda target: asyncio.run(target.aperform_bulk([[42]])),
}


@pytest.mark.parametrize("target", ["function", "class", "setter"])
@pytest.mark.parametrize("verb", [*VERBS, *LATER, *BULK])
def test_every_verb_enqueues_with_the_options_of_the_job(target: str, verb: str, stored: Stored) -> None:
    send = declare()
    on = {"function": send, "class": send.job_class, "setter": send.set(tags=["t"])}[target]

    jid = {**VERBS, **LATER, **BULK}[verb](on)

    if verb in LATER:
        [(found, score)] = stored.schedule()
        assert 590 < score - time.time() < 610
    else:
        found = stored.one("mail")
    assert found["jid"] == (jid[0] if verb in BULK else jid)
    assert (found["class"], found["args"], found["retry"], found["queue"]) == ("Mailer", [42], 5, "mail")
    assert found.get("tags") == (["t"] if target == "setter" else None)


def test_perform_bulk_takes_controls(stored: Stored) -> None:
    jids = declare().perform_bulk([[1], [2]], at=2_000_000_000)

    assert len(jids) == 2
    assert [score for _, score in stored.schedule()] == [2_000_000_000] * 2


def test_options_are_inherited_and_those_of_a_subclass_change_nothing_above_it(stored: Stored) -> None:
    class Base(Job, queue="base", retry=3, tags=["b"]):
        """Carries options only: it has no perform."""

    class Child(Base, name="Child", queue="child"):
        def perform(self) -> None: ...

    class GrandChild(Child, name="GrandChild", retry=False):
        pass

    assert Base.options == {"queue": "base", "retry": 3, "tags": ["b"]}
    assert Child.options == {"queue": "child", "retry": 3, "tags": ["b"]}
    assert GrandChild.options == {"queue": "child", "retry": False, "tags": ["b"]}
    assert registry.get(Base.wire_name) is None
    GrandChild.perform_async()
    assert stored.one("child")["retry"] is False


def test_a_setter_may_be_used_again_and_merges_its_options(stored: Stored) -> None:
    setter = declare().set(queue="low").set(retry=1)

    jids = {setter.perform_async(1), setter.perform_async(2)}

    assert len(jids) == 2
    assert [(found["queue"], found["retry"]) for found in stored.queue("low")] == [("low", 1)] * 2
    assert declare().job_class.options == {"queue": "mail", "retry": 5}


def test_spans_of_options_become_seconds(stored: Stored) -> None:
    class Patient(Job, name="Patient", retry_for=timedelta(hours=1)):
        def perform(self) -> None: ...

    Patient.perform_async()
    Patient.set(retry_for=timedelta(minutes=1)).perform_async()

    assert [found["retry_for"] for found in stored.queue()] == [3600, 60]


@pytest.mark.parametrize(("verb", "instead"), [("delay_for", "perform_in"), ("delay_until", "perform_at")])
def test_verbs_that_sidekiq_removed_name_their_successor(verb: str, instead: str) -> None:
    send = declare()
    for target in (send, send.job_class):
        with pytest.raises(InvalidJob, match=rf"Mailer: {verb} is gone; call {instead}"):
            getattr(target, verb)(5, 42)


def test_a_decorator_on_something_else_is_refused() -> None:
    for wrong in (5, Job, "name", print):
        with pytest.raises(ConfigurationError, match="@job takes a function"):
            job(wrong)


def test_an_async_function_is_a_job_too(stored: Stored) -> None:
    @job(name="Async")
    async def fetch(url: str) -> str:
        return url

    assert fetch.job_class.is_async
    assert asyncio.run(fetch("a")) == "a"
    fetch.perform_async("b")
    assert stored.one()["args"] == ["b"]


def test_a_client_middleware_that_stops_a_push_gives_no_jid(config: Config, stored: Stored) -> None:
    class Stop:
        def call(self, *_args: Any) -> None:
            return None

    config.client_middleware.add(Stop)

    assert declare().perform_async(1) is None
    assert declare().perform_bulk([[1], [2]]) == [None, None]
    assert stored.keys() == []


def test_hooks_of_a_job_are_plain_functions_of_its_class() -> None:
    @job(name="Hooked", retry_in=lambda count, error, payload: 5, retries_exhausted=lambda payload, error: "discard")
    def hooked() -> None: ...

    assert hooked.job_class.retry_in is not None
    assert hooked.job_class.retry_in(0, ValueError(), {}) == 5
    assert hooked.job_class.retries_exhausted is not None
    assert hooked.job_class.retries_exhausted({}, ValueError()) == "discard"
    assert hooked.job_class.options == {}


def test_a_fresh_instance_knows_its_jid_and_batch() -> None:
    class Aware(Job, name="Aware"):
        def perform(self) -> None: ...

    alone = instantiate(Aware, {"jid": "a"})
    batched = instantiate(Aware, {"jid": "b", "bid": "x"})

    assert (alone.jid, alone.bid) == ("a", None)
    assert (batched.jid, batched.bid) == ("b", "x")


def test_no_job_runs_here() -> None:
    assert current_job() is None


def test_a_setter_is_made_from_the_class_or_by_hand(stored: Stored) -> None:
    Setter(declare().job_class, {"queue": "x", "wait": 0}).perform_async(1)

    assert stored.one("x")["args"] == [1]
