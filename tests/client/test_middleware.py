"""The client chain around a push: what it is given, and what its answer decides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.conftest import Stored
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob
from wurk_django.jobs import Job


def around(config: Config, act: Any) -> None:
    """Add a middleware that is this function."""

    class Around:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            return act(job_class, payload, queue, redis, call_next)

    config.client_middleware.add(Around)


@pytest.mark.oracle("core:C12")
@pytest.mark.parametrize("bulk", [False, True])
def test_a_middleware_that_returns_the_message_without_calling_on_lets_it_pass(
    bulk: bool, client: Client, config: Config, stored: Stored
) -> None:
    around(config, lambda job_class, payload, queue, redis, call_next: payload)

    jid = client.push_bulk({"class": "Foo", "args": [[1]]})[0] if bulk else client.push({"class": "Foo", "args": [1]})

    assert stored.one()["jid"] == jid


def test_what_the_chain_returns_is_what_is_pushed(client: Client, config: Config, stored: Stored) -> None:
    around(config, lambda job_class, payload, *_: {**payload, "class": "Bar", "args": [9], "jid": "other"})

    assert client.push({"class": "Foo", "args": [1]}) == "other"

    job = stored.one()
    assert (job["class"], job["args"], job["jid"]) == ("Bar", [9], "other")


@pytest.mark.parametrize("answer", [None, False, {}])
def test_a_falsy_answer_stops_the_push(answer: Any, client: Client, config: Config, stored: Stored) -> None:
    around(config, lambda *_: answer)

    assert client.push({"class": "Foo", "args": [1]}) is None
    assert client.prepare({"class": "Foo", "args": [1]}) is None
    assert stored.keys() == []


def test_it_is_given_the_class_as_it_was_pushed_the_whole_payload_the_queue_and_the_pool(
    client: Client, config: Config
) -> None:
    seen: list[Any] = []

    class Own(Job, name="Own", queue="low", retry=2):
        def perform(self) -> None: ...

    def note(job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        seen.append(
            (job_class, payload["class"], payload["retry"], queue, redis, {"jid", "created_at"} <= payload.keys())
        )
        return call_next()

    around(config, note)
    client.push({"class": Own, "args": []})
    client.push({"class": "Own", "args": []})
    client.push_bulk({"class": Own, "args": [[]]})

    assert seen == [
        (Own, "Own", 2, "low", config.redis, True),
        ("Own", "Own", True, "default", config.redis, True),
        (Own, "Own", 2, "low", config.redis, True),
    ]


def test_a_scheduled_job_passes_the_chain_when_it_is_pushed(client: Client, config: Config, stored: Stored) -> None:
    def stamp(job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        payload["locale"] = payload["at"]
        return call_next()

    around(config, stamp)
    client.push({"class": "Foo", "args": [], "at": 2e9})

    [(job, _)] = stored.schedule()
    assert job["locale"] == 2e9


def test_arguments_are_checked_after_the_chain_which_may_convert_them(
    client: Client, config: Config, stored: Stored
) -> None:
    def convert(job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        payload["args"] = [str(arg) if isinstance(arg, bytes) else arg for arg in payload["args"]]
        return call_next()

    around(config, convert)
    client.push({"class": "Foo", "args": [b"x"]})
    with pytest.raises(InvalidJob):
        client.push({"class": "Foo", "args": [{1}]})

    assert stored.one()["args"] == ["b'x'"]


def test_its_error_is_the_callers_and_nothing_is_written(client: Client, config: Config, stored: Stored) -> None:
    def fail(*_: Any) -> Any:
        raise PermissionError("no")

    around(config, fail)
    with pytest.raises(PermissionError):
        client.push({"class": "Foo", "args": []})
    assert stored.keys() == []


def test_what_it_changes_in_the_payload_does_not_change_the_callers_item(
    client: Client, config: Config, stored: Stored
) -> None:
    def change(job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
        payload["args"] = [1, 2]
        payload["extra"] = True
        return call_next()

    around(config, change)
    item = {"class": "Foo", "args": [1]}
    client.push(item)

    assert item == {"class": "Foo", "args": [1]}
    assert stored.one()["extra"] is True
