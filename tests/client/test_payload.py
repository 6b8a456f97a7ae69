"""The bytes of a pushed job: golden payloads, the order of keys, defaults, and what is stamped or stripped."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.conftest import Stored
from wurk_django import wire
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.jobs import Job

JID = rb"[0-9a-f]{24}"


def golden(before: bytes, after: bytes = b"") -> re.Pattern[bytes]:
    """A payload whose jid, created_at and enqueued_at are the only unknown bytes."""
    times = rb',"created_at":(\d{13}),"enqueued_at":(\d{13})'
    return re.compile(re.escape(before) + rb',"jid":"' + JID + rb'"' + re.escape(after) + times + rb"}")


@pytest.mark.oracle("core:P1")
def test_a_named_class_is_pushed_byte_for_byte_as_sidekiq_pushes_it(client: Client, stored: Stored) -> None:
    before_ms = time.time_ns() // 1_000_000

    jid = client.push({"class": "Foo", "args": [2]})

    [raw] = stored.raw()
    found = golden(b'{"retry":true,"queue":"default","class":"Foo","args":[2]').fullmatch(raw)
    assert found, raw
    assert before_ms <= int(found[1]) <= int(found[2]) <= time.time_ns() // 1_000_000
    assert stored.one()["jid"] == jid
    assert stored.names() == {b"default"}
    assert stored.keys() == [b"queue:default", b"queues"]


@pytest.mark.oracle("core:P2")
def test_a_job_class_is_pushed_with_its_options_first_and_its_text_raw(config: Config, stored: Stored) -> None:
    class Tagged(Job, name="Tagged", retry=5, tags=["x"]):
        def perform(self, *args: Any) -> None: ...

    Tagged.perform_async("é", 1.0, None)

    [raw] = stored.raw()
    expected = '{"retry":5,"queue":"default","tags":["x"],"args":["é",1.0,null],"class":"Tagged"'.encode()
    assert golden(expected).fullmatch(raw), raw


def test_a_scheduled_job_is_stored_without_its_time_and_without_enqueued_at(
    client: Client, redis: redis_py.Redis
) -> None:
    client.push({"class": "Foo", "args": [], "at": 2_000_000_000.5, "enqueued_at": 5})

    [(raw, score)] = redis.zrange("schedule", 0, -1, withscores=True)
    expected = rb'{"retry":true,"queue":"default","class":"Foo","args":\[\],"jid":"' + JID + rb'","created_at":\d{13}}'
    assert re.fullmatch(expected, raw), raw
    assert score == 2_000_000_000.5


@pytest.mark.oracle("core:P3")
def test_a_given_created_at_stays_and_enqueued_at_is_stamped_again(client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": [], "created_at": 123, "enqueued_at": 456})

    assert stored.one()["created_at"] == 123
    assert stored.one()["enqueued_at"] > 1_700_000_000_000


@pytest.mark.usefixtures("stopped_clock")
def test_times_are_whole_milliseconds_rounded_down(client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": []})

    assert b'"created_at":1796073053160,"enqueued_at":1796073053160}' in stored.raw()[0]


@pytest.mark.usefixtures("stopped_clock")
def test_for_fleets_with_old_sidekiqs_times_are_float_seconds(make_config: Any, stored: Stored) -> None:
    Client(make_config(wire_timestamps="seconds")).push({"class": "Foo", "args": []})

    assert b'"created_at":1796073053.1605,"enqueued_at":1796073053.1605}' in stored.raw()[0]


def test_the_jobs_of_one_push_share_one_reading_of_the_clock(client: Client, stored: Stored) -> None:
    client.push_bulk({"class": "Foo", "args": [[n] for n in range(500)]})

    jobs = stored.queue()
    assert len({job["enqueued_at"] for job in jobs}) == len({job["created_at"] for job in jobs}) == 1


@pytest.mark.oracle("core:P4")
def test_retry_for_is_cut_to_whole_seconds(client: Client, stored: Stored) -> None:
    client.push({"class": "Foo", "args": [], "retry_for": 100.9})

    assert b'"retry_for":100,' in stored.raw()[0]


def test_a_given_jid_is_kept_verbatim(client: Client, stored: Stored) -> None:
    assert client.push({"class": "Foo", "args": [], "jid": "my own: é"}) == "my own: é"
    assert stored.one()["jid"] == "my own: é"


def test_jids_are_24_hexadecimal_digits_and_never_repeat(client: Client) -> None:
    jids = client.push_bulk({"class": "Foo", "args": [[]] * 2000}) + [
        client.push({"class": "Foo", "args": []}) for _ in range(50)
    ]
    assert len(set(jids)) == 2050
    assert all(jid and re.fullmatch("[0-9a-f]{24}", jid) for jid in jids)


@pytest.mark.oracle("core:D2")
def test_control_keys_never_reach_redis(client: Client, stored: Stored, config: Config) -> None:
    controls = {
        "sync": False, "wait": 5, "wait_until": 5, "pool": config.redis, "client_class": Client, "batch_size": 5,
        "spread_interval": 5, "using": "default", "on_commit": False, "wait_replicas": 0,
    }  # fmt: skip
    assert controls.keys() == wire.CONTROL_KEYS

    client.push({"class": "Foo", "args": [], **controls, "custom": {"kept": True}})

    job = stored.one()
    assert not controls.keys() & job.keys()
    assert job["custom"] == {"kept": True}


def test_the_item_of_the_caller_is_left_alone(client: Client) -> None:
    item: dict[str, Any] = {"class": "Foo", "args": (1, [2]), "at": 2_000_000_000, "batch_size": 7, "kwargs": {}}
    before = dict(item)

    client.push(item)
    client.push_bulk({**item, "args": [[1]]})

    assert item == before


def test_options_of_the_item_win_over_those_of_the_wrapped_class_and_the_class(client: Client, stored: Stored) -> None:
    class Wrapper(Job, name="Wrapper", retry=1, queue="wrapper", tags=["w"], backtrace=True):
        def perform(self) -> None: ...

    class Real(Job, name="Real", retry=2, queue="real"):
        def perform(self) -> None: ...

    client.push({"class": Wrapper, "wrapped": Real, "args": [], "retry": 3})

    job = stored.one("real")
    assert (job["class"], job["wrapped"]) == ("Wrapper", "Real")
    assert (job["retry"], job["tags"], job["backtrace"]) == (3, ["w"], True)


def test_global_default_options_are_in_every_job_and_a_class_overrides_them(make_config: Any, stored: Stored) -> None:
    class Own(Job, name="Own", retry=1):
        def perform(self) -> None: ...

    client = Client(make_config(default_job_options=(("retry", 9), ("queue", "d"), ("backtrace", 3))))
    client.push({"class": "Foreign", "args": []})
    client.push({"class": Own, "args": []})

    foreign, own = stored.queue("d")
    assert (foreign["retry"], foreign["backtrace"]) == (9, 3)
    assert (own["retry"], own["backtrace"]) == (1, 3)


def test_keyword_arguments_travel_in_a_field_of_their_own_only_when_there_are_any(
    config: Config, stored: Stored
) -> None:
    class Mail(Job, name="Mail"):
        def perform(self, to: str, lang: str = "en") -> None: ...

    Mail.perform_async("a")
    Mail.perform_async("a", lang="de")

    without, having = stored.queue()
    assert "kwargs" not in without
    assert having["kwargs"] == {"lang": "de"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(args=st.lists(json_values, max_size=4), extra=st.dictionaries(st.text("abxyz", min_size=3), json_values))
def test_arguments_and_unknown_fields_arrive_as_they_were(
    args: list[Any], extra: dict[str, Any], client: Client, redis: redis_py.Redis, stored: Stored
) -> None:
    redis.delete("queue:default")

    client.push({"class": "Foo", "args": args, **extra})

    [raw] = stored.raw()
    job = wire.decode_job(raw)
    assert repr(job["args"]) == repr(args)
    assert {name: repr(job[name]) for name in extra} == {name: repr(value) for name, value in extra.items()}
