"""What a job's bytes say: times of every form, Active Job, sealed arguments; and bytes that are no job."""

from __future__ import annotations

import base64
import json
import time
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.corpus import CORPUS
from wurk_django.api import JobRecord, SortedEntry
from wurk_django.config import Config
from wurk_django.storage.sorted_sets import Member

CONFIG = Config()

PROPERTIES = (
    "item", "queue", "jid", "bid", "klass", "args", "tags", "created_at", "enqueued_at", "failed_at", "retried_at",
    "latency", "retry_count", "has_error", "error_class", "error_message", "error_backtrace", "display_class",
    "display_args", "display_kwargs", "id", "at",
)  # fmt: skip
SHOWN = ("queue", "jid", "bid", "klass", "tags", "error_class", "error_message", "error_backtrace", "display_class",
         "display_args", "display_kwargs", "id")  # fmt: skip


def record(item: Any) -> JobRecord:
    return JobRecord(json.dumps(item).encode(), CONFIG)


def read_everything(raw: bytes, score: float = 1.0) -> None:
    entry = SortedEntry(Member(raw, score), "retry", CONFIG)
    for name in PROPERTIES:
        getattr(entry, name)
    assert repr(entry)
    for name in SHOWN:
        json.dumps(getattr(entry, name), ensure_ascii=False).encode()


@pytest.mark.oracle("core:P8")
@pytest.mark.parametrize("enqueued_at", [lambda now: int(now * 1000) - 5000, lambda now: now - 5.0])
def test_the_latency_reads_old_and_new_times(enqueued_at: Any) -> None:
    assert 4.5 < record({"enqueued_at": enqueued_at(time.time())}).latency < 7
    assert record({}).latency == 0.0
    assert record({"enqueued_at": time.time() + 50}).latency == 0.0


@pytest.mark.oracle("core:P9")
def test_the_latency_counts_from_the_queue_and_not_from_the_creation() -> None:
    now = time.time()

    assert record({"enqueued_at": now - 5, "created_at": now - 500}).latency < 7
    assert 400 < record({"created_at": now - 500}).latency < 600


@pytest.mark.oracle("core:V4")
@pytest.mark.parametrize("stored", [1796073053.16, 1796073053160, 1796073053])
def test_a_time_is_the_same_in_each_form(stored: float) -> None:
    for name in ("created_at", "enqueued_at", "failed_at", "retried_at"):
        shown = getattr(record({name: stored}), name)
        assert shown.replace(microsecond=0) == datetime(2026, 11, 30, 21, 10, 53, tzinfo=UTC)


WRAPPERS = ["Sidekiq::ActiveJob::Wrapper", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_active_job_is_shown_as_what_it_wraps(wrapper: str) -> None:
    arguments = [1, {"_aj_globalid": "gid://app/User/1"}, {"a": 1, "_aj_symbol_keys": ["a"]}, [{"_aj_globalid": "g"}]]
    job = record({"class": wrapper, "wrapped": "Mine", "args": [{"job_class": "Mine", "arguments": arguments}]})

    assert job.klass == wrapper
    assert job.display_class == "Mine"
    assert job.display_args == [1, "gid://app/User/1", {"a": 1}, ["g"]]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_mailer_job_is_shown_as_the_mailers_method(wrapper: str) -> None:
    old = ["UserMailer", "welcome", "deliver_now", 1, 2]
    new = ["UserMailer", "welcome", "deliver_now", {"params": {"user": {"_aj_globalid": "gid://u"}}, "args": [7]}]

    def job(kind: str, arguments: list[Any]) -> JobRecord:
        return record({"class": wrapper, "wrapped": kind, "args": [{"job_class": kind, "arguments": arguments}]})

    first, second = job("ActionMailer::DeliveryJob", old), job("ActionMailer::MailDeliveryJob", new)
    assert (first.display_class, first.display_args) == ("UserMailer#welcome", [1, 2])
    assert (second.display_class, second.display_args) == ("UserMailer#welcome", [{"user": "gid://u"}, [7]])
    assert job("ActionMailer::MailDeliveryJob", old[:3]).display_args == [None, None]


def test_a_display_class_of_its_own_comes_first() -> None:
    assert record({"class": "A", "display_class": "B", "args": []}).display_class == "B"


def test_a_sealed_argument_is_not_shown() -> None:
    job = record({"class": "A", "args": [1, "sealed"], "encrypt": True})

    assert job.display_args == [1, "[encrypted data]"]
    assert job.args == [1, "sealed"]


def test_keyword_arguments_are_shown() -> None:
    assert record({"class": "A", "args": [], "kwargs": {"lang": "en"}}).display_kwargs == {"lang": "en"}


def test_what_is_no_json_shows_its_text_as_its_only_argument() -> None:
    job = JobRecord(b"\xffnot json", CONFIG, "q")

    assert (job.item, job.klass, job.display_class, job.jid, job.queue) == ({}, None, None, None, "q")
    assert job.args == job.display_args == ["\ufffdnot json"]


def test_an_error_is_told_with_its_backtrace() -> None:
    packed = base64.encodebytes(zlib.compress(b'["a.rb:1","b.rb:2"]' + b" " * 300)).decode()
    job = record({"error_class": "E", "error_message": "m", "error_backtrace": packed, "retry_count": 3})

    assert (job.has_error, job.error_class, job.error_message, job.retry_count) == (True, "E", "m", 3)
    assert job.error_backtrace == ["a.rb:1", "b.rb:2"]
    assert not record({}).has_error


@pytest.mark.oracle("safety:S-12")
def test_a_backtrace_that_unfolds_too_far_is_too_large() -> None:
    bomb = base64.b64encode(zlib.compress(b"[" + b" " * 50_000_000 + b"]")).decode()

    assert record({"error_backtrace": bomb}).error_backtrace == ["(too large)"]


@pytest.mark.oracle("safety:S-05", "safety:S-06", "safety:S-07", "safety:S-08")
@pytest.mark.parametrize("name", sorted(CORPUS))
def test_hostile_bytes_are_a_row_like_others(name: str) -> None:
    read_everything(CORPUS[name])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FIELDS = (
    "class", "args", "jid", "bid", "queue", "wrapped", "display_class", "encrypt", "tags", "kwargs", "created_at",
    "enqueued_at", "failed_at", "retried_at", "retry_count", "error_class", "error_message", "error_backtrace",
)  # fmt: skip


@pytest.mark.oracle("safety:S-08")
@settings(max_examples=150, deadline=None)
@given(
    item=st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)),
    kind=st.sampled_from([None, *WRAPPERS]),
    mailer=st.sampled_from([None, "ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"]),
    score=st.floats(allow_nan=False),
)
def test_any_value_in_any_field_is_a_row_like_others(
    item: dict[str, Any], kind: str | None, mailer: str | None, score: float
) -> None:
    item = {**item, **({"class": kind} if kind else {}), **({"wrapped": mailer} if mailer else {})}

    read_everything(json.dumps(item).encode(), score)
