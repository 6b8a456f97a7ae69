"""What is refused at the door: nothing is written, and the message says what was wrong."""

from __future__ import annotations

import datetime
import decimal
import logging
from typing import Any

import pytest

from tests.client.conftest import Stored
from wurk_django import wire
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob, WurkError
from wurk_django.jobs import Job

HUGE = 10**5000


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


REFUSED: dict[str, tuple[Any, str]] = {
    "no dict": ("Foo", "must be a dict with 'class' and 'args'"),
    "nothing": (None, "must be a dict with 'class' and 'args'"),
    "a list": (["Foo", []], "must be a dict with 'class' and 'args'"),
    "no class": ({"args": []}, "must be a dict with 'class' and 'args'"),
    "no args": ({"class": "Foo"}, "must be a dict with 'class' and 'args'"),
    "args null": ({"class": "Foo", "args": None}, "Foo: args must be a list"),
    "args text": ({"class": "Foo", "args": "abc"}, "Foo: args must be a list"),
    "args dict": ({"class": "Foo", "args": {"a": 1}}, "Foo: args must be a list"),
    "args iterator": ({"class": "Foo", "args": iter([1])}, "Foo: args must be a list"),
    "class number": ({"class": 42, "args": []}, "class must be a Job class or its name, got 42"),
    "class null": ({"class": None, "args": []}, "class must be a Job class or its name"),
    "class empty": ({"class": "", "args": []}, "class must be a Job class or its name"),
    "class no job": ({"class": dict, "args": []}, "class must be a Job class or its name"),
    "class instance": (
        {"class": Unprintable(), "args": []},
        "class must be a Job class or its name, got a Unprintable",
    ),
    "wrapped number": ({"class": "Foo", "args": [], "wrapped": 5}, "class must be a Job class or its name, got 5"),
    "key number": ({"class": "Foo", "args": [], 5: 1}, "keys must be strings"),
    "at text": ({"class": "Foo", "args": [], "at": "soon"}, "Foo: 'at' must be epoch seconds, got 'soon'"),
    "at null": ({"class": "Foo", "args": [], "at": None}, "'at' must be epoch seconds"),
    "at bool": ({"class": "Foo", "args": [], "at": True}, "'at' must be epoch seconds"),
    "at nan": ({"class": "Foo", "args": [], "at": float("nan")}, "'at' must be epoch seconds"),
    "at infinite": ({"class": "Foo", "args": [], "at": float("inf")}, "'at' must be epoch seconds"),
    "at huge": ({"class": "Foo", "args": [], "at": HUGE}, "'at' must be epoch seconds, got a int"),
    "at datetime": ({"class": "Foo", "args": [], "at": datetime.datetime(2026, 1, 1)}, "'at' must be epoch seconds"),
    "tags text": ({"class": "Foo", "args": [], "tags": "a"}, "Foo: tags must be a list, got 'a'"),
    "tags tuple": ({"class": "Foo", "args": [], "tags": ("a",)}, "tags must be a list"),
    "jid number": ({"class": "Foo", "args": [], "jid": 42}, "Foo: jid must be a text, got 42"),
    "jid surrogate": ({"class": "Foo", "args": [], "jid": "\ud800"}, "cannot be written as UTF-8"),
    "retry_for text": ({"class": "Foo", "args": [], "retry_for": "5m"}, "retry_for must be a number of seconds"),
    "retry_for huge": ({"class": "Foo", "args": [], "retry_for": HUGE}, "retry_for must be a number of seconds"),
    "kwargs with encrypt": (
        {"class": "Foo", "args": [], "kwargs": {"a": 1}, "encrypt": True},
        "kwargs cannot be used together with encrypt",
    ),
    "opaque field": ({"class": "Foo", "args": [], "meta": object()}, "not JSON: object is not JSON"),
    "circular field": ({"class": "Foo", "args": [], "meta": (loop := [[]], loop.append(loop))}, "nested deeper"),
}


#: What JSON cannot write is met when it is written.
MET_LATE = {"jid surrogate", "opaque field", "circular field"}


@pytest.mark.parametrize(
    ("case", "verb"),
    [(case, "push") for case in REFUSED] + [(case, "prepare") for case in REFUSED if case not in MET_LATE],
)
def test_a_wrong_item_is_refused_and_nothing_is_written(
    case: str, verb: str, client: Client, config: Config, stored: Stored
) -> None:
    item, message = REFUSED[case]

    with pytest.raises(InvalidJob) as refusal:
        getattr(client, verb)(item)

    assert message in str(refusal.value)
    assert isinstance(refusal.value, ValueError)
    assert isinstance(refusal.value, WurkError)
    assert stored.keys() == []


@pytest.mark.oracle("core:P5")
def test_retry_for_must_be_a_span_and_not_a_time(client: Client, stored: Stored) -> None:
    with pytest.raises(InvalidJob, match="retry_for must be a span in seconds, not a time; got 2000000000"):
        client.push({"class": "Foo", "args": [], "retry_for": 2_000_000_000})
    assert stored.keys() == []

    client.push({"class": "Foo", "args": [], "retry_for": 1_000_000_000})
    assert stored.one()["retry_for"] == 1_000_000_000


@pytest.mark.oracle("core:P6")
@pytest.mark.parametrize("mode", ["raise", "warn", "off"])
def test_a_number_that_is_none_is_refused_in_every_mode(mode: str, make_config: Any, stored: Stored) -> None:
    with pytest.raises(InvalidJob, match="Foo: the arguments are not JSON"):
        Client(make_config(on_complex_arguments=mode)).push({"class": "Foo", "args": [float("nan")]})
    assert stored.keys() == []


def test_the_options_of_a_class_are_checked_like_those_of_an_item(config: Config, stored: Stored) -> None:
    class Late(Job, name="Late", retry_for=2_000_000_000):
        def perform(self) -> None: ...

    class Tagged(Job, name="Tagged", tags="urgent"):
        def perform(self) -> None: ...

    class Sealed(Job, name="Sealed", encrypt=True):
        def perform(self, secret: str) -> None: ...

    with pytest.raises(InvalidJob, match="Late: retry_for must be a span"):
        Late.perform_async()
    with pytest.raises(InvalidJob, match="Tagged: tags must be a list"):
        Tagged.perform_bulk([[]])
    with pytest.raises(InvalidJob, match="Sealed: kwargs cannot be used together with encrypt"):
        Sealed.perform_async(secret="x")
    assert stored.keys() == []


@pytest.mark.parametrize("tags", [None, [], ["a"], ["a", "b"]])
def test_tags_may_be_null_or_a_list(tags: Any, client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": [], "tags": tags})
    assert stored.one()["tags"] == tags


@pytest.mark.oracle("core:C9")
@pytest.mark.parametrize("queue", ["", None, 0, []])
def test_a_job_needs_a_queue(queue: Any, client: Client, stored: Stored) -> None:
    for push in (
        lambda: client.push({"class": "Foo", "args": [], "queue": queue}),
        lambda: client.push_bulk({"class": "Foo", "args": [[1]], "queue": queue}),
    ):
        with pytest.raises(InvalidJob, match="Foo: the job must include a valid queue name"):
            push()
    assert stored.keys() == []


@pytest.mark.oracle("safety:S-13")
@pytest.mark.parametrize(
    "queue", ["a|b", "default|host|1|0123456789ab|0", "a\nb", "a\x00", "a\x85", "\ud800", "q" * 201]
)
def test_a_queue_name_that_would_forge_a_key_is_refused(queue: str, client: Client, stored: Stored) -> None:
    for item in ({"class": "Foo", "args": [], "queue": queue}, {"class": "Foo", "args": [], "queue": queue, "at": 2e9}):
        with pytest.raises(InvalidJob, match="cannot be a queue name"):
            client.push(item)
    with pytest.raises(InvalidJob, match="cannot be a queue name"):
        client.enqueue_to(queue, "Foo")
    assert stored.keys() == []


@pytest.mark.oracle("safety:S-04")
def test_a_job_of_a_mebibyte_is_pushed_and_a_larger_one_refused(
    client: Client, make_config: Any, stored: Stored
) -> None:
    client.push({"class": "Foo", "args": ["x" * (wire.MAX_JOB_BYTES - 200)]})
    assert len(stored.raw()) == 1
    for push in (
        lambda: client.push({"class": "Foo", "args": ["x" * wire.MAX_JOB_BYTES]}),
        lambda: client.push({"class": "Foo", "args": ["x" * wire.MAX_JOB_BYTES], "at": 2e9}),
        lambda: client.push_bulk({"class": "Foo", "args": [["x" * wire.MAX_JOB_BYTES]]}),
        lambda: Client(make_config(max_job_bytes=100)).push({"class": "Foo", "args": []}),
    ):
        with pytest.raises(InvalidJob, match=r"Foo: the job has .* bytes, the limit is"):
            push()
    assert len(stored.raw()) == 1
    assert stored.schedule() == []


class SomeDictSubclass(dict[str, int]):
    pass


@pytest.mark.oracle("core:P7")
def test_complex_arguments_are_refused_by_name_warned_about_or_serialised(
    make_config: Any, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    item = {"class": "Foo", "args": [{"a": SomeDictSubclass(b=1)}]}

    with pytest.raises(InvalidJob, match=r"Foo: args\[0\]\.a is .*SomeDictSubclass"):
        Client(make_config(on_complex_arguments="raise")).push(item)
    assert stored.keys() == []

    with caplog.at_level(logging.WARNING, "wurk"):
        Client(make_config(on_complex_arguments="warn")).push(item)
    assert "SomeDictSubclass" in caplog.text
    caplog.clear()

    Client(make_config(on_complex_arguments="off")).push(item)
    assert caplog.text == ""
    assert [job["args"] for job in stored.queue()] == [[{"a": {"b": 1}}]] * 2


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_what_json_has_no_form_for_is_refused_in_every_mode(mode: str, make_config: Any, stored: Stored) -> None:
    client = Client(make_config(on_complex_arguments=mode))
    for value in (object(), {1, 2}, b"a", decimal.Decimal(1), Unprintable(), HUGE, {(1, 2): 3}):
        with pytest.raises(InvalidJob, match="Foo: the arguments are not JSON"):
            client.push({"class": "Foo", "args": [value]})
    assert stored.keys() == []


def test_keyword_arguments_are_checked_like_arguments(config: Config, stored: Stored) -> None:
    class Mail(Job, name="Mail"):
        def perform(self, **kwargs: Any) -> None: ...

    with pytest.raises(InvalidJob, match=r"Mail: kwargs\.when is "):
        Mail.perform_async(when=datetime.date(2026, 1, 1))
    assert stored.keys() == []


def test_the_tuple_of_the_python_call_is_no_offence(config: Config, client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": (1, "a")})
    assert stored.one()["args"] == [1, "a"]
