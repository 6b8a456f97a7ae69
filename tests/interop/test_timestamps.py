"""Times of several Sidekiq generations on one Redis: what 6.4 makes of our milliseconds, and we of its floats."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis

from tests.interop.django_peer import DjangoClient, DjangoWorker
from tests.interop.recorded import recorded
from tests.interop.watching import make_due, raw_members, wait_for_member, wait_until_ran
from tests.support.ruby import RubyClient, RubyWeb, RubyWorker
from wurk_django import wire

pytestmark = pytest.mark.interop

WRAPPED = {
    "wrapped": "CleanUp",
    "class": "Sidekiq::ActiveJob::Wrapper",
    "args": [{"job_class": "CleanUp", "arguments": []}],
}
JID = "0123456789abcdef01234567"


def payload(**fields: Any) -> bytes:
    """A job as a client of another generation would have written it."""
    base = {"retry": True, "queue": "default", "class": "Recorder", "args": [1], "jid": JID}
    return json.dumps({**base, **fields}, separators=(",", ":")).encode()


def test_sidekiq_6_reads_the_latency_of_our_milliseconds_as_minus_an_age_of_the_world(
    store: redis.Redis, ruby: RubyClient, django: DjangoClient, web: RubyWeb
) -> None:
    jid = django.perform_async("Recorder", 1)
    (raw,) = raw_members(store, "queue:default")
    enqueued_at_ms = json.loads(raw)["enqueued_at"]
    assert type(enqueued_at_ms) is int

    now = time.time()
    expected = pytest.approx(now - enqueued_at_ms, abs=60)
    (row,) = ruby.call("queue", name="default")
    assert (row["jid"], row["latency"]) == (jid, expected)
    assert ruby.call("latency", name="default") == expected
    assert ruby.call("stats")["default_queue_latency"] == expected
    assert ruby.call("latency", name="default") < -1.7e12
    assert web.get("/queues").status == 200
    assert web.get("/queues").row("queues/default").startswith("default 1 -1,7")


def test_sidekiq_6_reads_our_milliseconds_as_times_far_in_the_future_and_its_pages_still_open(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient, web: RubyWeb
) -> None:
    jid = django.perform_async("Failing", 1)
    with DjangoWorker(url):
        for count in (0, 1):
            ours = wait_for_member(store, "retry", jid, retry_count=count)
            make_due(store, "retry") if count == 0 else None
    row = ruby.find("retry", jid)

    read, written = [(found["created_at"], found["enqueued_at"]) for found in (row, ours)]
    assert read == pytest.approx(written, abs=1)
    assert all(type(ours[name]) is int for name in ("created_at", "enqueued_at", "failed_at", "retried_at"))
    page = web.get(f"/retries/{row['score']!r}-{jid}")
    assert page.status == 200
    assert year_of(ours["created_at"]) > 58_000
    assert page.text.count(f" {year_of(ours['created_at'])}-") == 3, (
        "created, enqueued and last retry, but not the next"
    )


def test_sidekiq_6_runs_retries_schedules_and_finds_our_millisecond_jobs(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient
) -> None:
    done, failing = django.perform_async("Recorder", 1), django.perform_async("Failing", 1, retry=1)
    planned = django.perform_in("Recorder", 3600, 2)
    assert ruby.find("schedule", planned)["args"] == [2]
    make_due(store, "schedule")
    with RubyWorker(url):
        wait_until_ran(store, done, planned)
        assert type(wait_for_member(store, "retry", failing, retry_count=0)["failed_at"]) is float
        make_due(store, "retry")
        dead = wait_for_member(store, "dead", failing)
    assert (dead["retry_count"], type(dead["created_at"])) == (1, int)
    assert ruby.call("stats")["processed"] == 4


def test_sidekiq_6_shows_no_threads_for_a_process_without_concurrency_in_its_info(
    store: redis.Redis, web: RubyWeb
) -> None:
    info = {"hostname": "h", "started_at": time.time(), "pid": 1, "tag": "", "queues": ["q"], "identity": "h:1:abc"}
    store.sadd("processes", "h:1:abc")
    store.hset("h:1:abc", mapping={"info": json.dumps(info), "concurrency": 5, "busy": 0, "beat": time.time()})
    page = web.get("/busy")
    assert page.status == 200
    assert "1 Processes 0 Threads" in page.text


def test_sidekiq_6_retries_a_job_of_sidekiq_8s_active_job_wrapper_as_an_unknown_class(
    store: redis.Redis, url: str, django: DjangoClient
) -> None:
    jid = django.push(WRAPPED)
    with RubyWorker(url):
        assert wait_for_member(store, "retry", jid, retry_count=0)["error_class"] == "NameError"


def test_under_seconds_sidekiq_6_reads_our_times_as_they_are(
    store: redis.Redis, url: str, ruby: RubyClient, web: RubyWeb
) -> None:
    with DjangoClient(url, WIRE_TIMESTAMPS="seconds") as client:
        jid = client.perform_async("Failing", 1)
        waiting = client.perform_async("Recorder", 1, queue="other")
    assert 0 <= ruby.call("latency", name="other") < 30
    with DjangoWorker(url, WIRE_TIMESTAMPS="seconds"):
        for count in (0, 1):
            wait_for_member(store, "retry", jid, retry_count=count)
            make_due(store, "retry") if count == 0 else None
    row = ruby.find("retry", jid)

    now = time.time()
    assert now - 60 < row["created_at"] <= row["enqueued_at"] <= now
    stored = json.loads(row["raw"])
    assert all(type(stored[name]) is float for name in ("created_at", "enqueued_at", "failed_at", "retried_at"))
    assert now - 60 < stored["failed_at"] <= stored["retried_at"] <= now
    page = web.get(f"/retries/{row['score']!r}-{jid}")
    assert page.text.count(f" {time.gmtime(now).tm_year}-") == 4, "created, enqueued, last retry and next retry"
    assert web.get("/queues/other").row(waiting)


@pytest.mark.oracle("core:V2")
def test_a_backtrace_in_lines_of_sixty_characters_is_decoded() -> None:
    packed = json.loads(recorded("backtrace_all")["raw"][0])["error_backtrace"]
    assert packed.count("\n") > 1
    assert max(map(len, packed.splitlines())) == 60
    assert wire.unpack_backtrace(packed) == [f"app/jobs/step_{n}.rb:{n}:in `é{n}'" for n in range(1, 9)]


@pytest.mark.oracle("core:V4")
def test_the_three_forms_of_a_time_are_the_same_instant() -> None:
    seconds, milliseconds, whole = (wire.read_time(value) for value in (1796073053.16, 1796073053160, 1796073053))
    assert seconds == milliseconds == 1796073053.16
    assert whole == 1796073053.0


@pytest.mark.parametrize(
    ("form", "times"),
    [
        ("Sidekiq 6 and 7", {"created_at": 1796073053.16, "enqueued_at": 1796073053.17}),
        ("Sidekiq 8", {"created_at": 1796073053160, "enqueued_at": 1796073053170}),
        ("Sidekiq 7 moved a job of Sidekiq 8", {"created_at": 1796073053160, "enqueued_at": 1796073053.17}),
        ("a sloppy client", {"created_at": 1796073053, "enqueued_at": "yesterday"}),
        ("no times at all", {}),
    ],
)
def test_our_worker_runs_jobs_with_the_times_of_any_generation(
    store: redis.Redis, url: str, form: str, times: dict[str, Any]
) -> None:
    store.lpush("queue:default", payload(**times))
    with DjangoWorker(url):
        (row,) = wait_until_ran(store, JID)
    assert row["by"] == "python", form


@pytest.mark.parametrize("failed_at", [1796073053.16, 1796073053160])
def test_our_retry_of_a_job_that_failed_in_another_generation_keeps_its_first_failure(
    store: redis.Redis, url: str, failed_at: float
) -> None:
    error = {"error_message": "was", "error_class": "Other", "retry_count": 2, "failed_at": failed_at}
    store.lpush("queue:default", payload(**{"class": "Failing"}, **error, retried_at=failed_at, created_at=failed_at))
    with DjangoWorker(url):
        again = wait_for_member(store, "retry", JID, retry_count=3)
    assert (again["failed_at"], again["created_at"]) == (failed_at, failed_at)
    assert type(again["failed_at"]) is type(failed_at)
    assert type(again["retried_at"]) is int
    assert again["error_class"] == "RuntimeError"


def year_of(epoch_s: float) -> int:
    """The Gregorian year of a time that Python's calendar does not reach."""
    cycle_s = 146_097 * 86_400  # 400 years
    cycles, rest = divmod(epoch_s, cycle_s)
    return 400 * int(cycles) + time.gmtime(rest).tm_year
