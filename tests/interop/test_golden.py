"""What we write under `WIRE_TIMESTAMPS = "seconds"` is, but for jid and times, byte for byte what Sidekiq 6.4 wrote."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.interop.django_peer import DjangoClient, DjangoWorker
from tests.interop.recorded import names, recorded
from tests.interop.watching import make_due, raw_members, wait_for_members, without_enqueued_at
from tests.support.ruby import SCRIPTS, ruby_environment, wait_for
from wurk_django import wire

pytestmark = pytest.mark.interop

AT = 2_000_000_000
CONTROLS = "\"\\/\b\f\n\r\t\x00\x01\x1f\x7f\x80\u2028\u2029<>&'"
SECONDS = {"WIRE_TIMESTAMPS": "seconds"}
ELSEWHERE = ["elsewhere"]

Push = Callable[[DjangoClient], object]


def nest(levels: int) -> list[Any]:
    return [nest(levels - 1)] if levels > 1 else []


def item(**fields: Any) -> dict[str, Any]:
    return {"class": "Recorder", "args": [2], **fields}


FIELDS = {"jid": "my-own-jid", "queue": "high", "retry": 7, "tags": ["t"], "created_at": 123, "custom": {"k": "v"}}
NESTED = [{"z": [1, {"a": None, "": [[]]}], "b": {"c": {}}}, [[1], [2, [3]]]]

#: What we call where `record.rb` makes the call that the file names.
PUSHES: dict[str, Push] = {
    "plain": lambda c: c.perform_async("Recorder", 1, "two"),
    "no_arguments": lambda c: c.perform_async("Recorder"),
    "values": lambda c: c.perform_async("Recorder", None, True, False, 0, -1, "", [], {}),
    "class_options": lambda c: c.perform_async("Tagged", "é", 1.0, None),
    "set_options": lambda c: c.perform_async("Recorder", 1, queue="high", retry=3, tags=["x"], backtrace=5),
    "unknown_option": lambda c: c.perform_async("Recorder", 1, custom={"a": [1]}),
    "backtrace_option": lambda c: c.perform_async("WithBacktrace", 1),
    "retry_zero": lambda c: c.perform_async("DiesAtOnce", 1),
    "retry_false": lambda c: c.perform_async("NeverRetried", 1),
    "unicode": lambda c: c.perform_async(
        "Recorder", "é", "日本語", "😀", "e\u0301", "\u200f\u05d0", "\ufeff", "\ufffd"
    ),
    "escapes": lambda c: c.perform_async("Recorder", CONTROLS, {CONTROLS: CONTROLS}),
    "floats": lambda c: c.perform_async(
        "Recorder", 1.0, -0.0, 0.1, 3.141592653589793, 0.0001, 123456789012345.6, 1.5e300
    ),
    "big_integers": lambda c: c.perform_async("Recorder", 2**53, 2**63, 2**64, -(2**63) - 1, 10**40),
    "nested": lambda c: c.perform_async("Recorder", *NESTED),
    "deepest": lambda c: c.perform_async("Recorder", nest(98)),
    "client_push": lambda c: c.push(item()),
    "client_push_fields": lambda c: c.push(item(**FIELDS)),
    "client_push_at": lambda c: c.push(item(at=AT)),
    "client_push_at_float": lambda c: c.push(item(at=AT + 0.25)),
    "perform_in": lambda c: c.perform_in("Recorder", 3600, "later"),
    "perform_at": lambda c: c.perform_at("Tagged", AT, 1),
    "perform_in_past": lambda c: c.perform_in("Recorder", -5, 1),
    "set_wait": lambda c: c.perform_async("Recorder", 1, wait=3600, queue="high"),
    "perform_bulk": lambda c: c.perform_bulk("Recorder", [[1], [2], [3]]),
    "push_bulk_at": lambda c: c.push_bulk(item(args=[[1], [2]], at=[AT, AT + 1.5])),
}

#: What fails once and then stands in `retry` or `dead`.
FAILURES: dict[str, Push] = {
    "first_failure": lambda c: c.perform_async("Failing", 1),
    "retry_queue": lambda c: c.perform_async("Failing", 1, retry_queue="low"),
    "backtrace_all": lambda c: c.perform_async("WithBacktrace", 1),
    "backtrace_three": lambda c: c.perform_async("WithThreeLines", 1),
    "dead_at_once": lambda c: c.perform_async("DiesAtOnce", 1),
}

#: What fails, is moved by the scheduler and fails again.
TWICE: dict[str, Push] = {
    "second_failure": lambda c: c.perform_async("Failing", 1),
    "dead_after_retry": lambda c: c.perform_async("Failing", 1, retry=1),
}

#: What the scheduler moves to its queue.
PROMOTED: dict[str, tuple[Push, str]] = {
    "promoted": (lambda c: c.perform_in("Recorder", 3600, 1), "schedule"),
    "retry_promoted": (lambda c: c.perform_async("Failing", 1), "retry"),
}

#: Recorded for other tests, or written differently on purpose.
ELSEWHERE_TESTED = {"floats_exponent", "dead_malformed", "killed_by_hand", "retried_by_hand"}


def bare(raw: bytes | str) -> str:
    """The payload without what differs from run to run: a random jid, float times, the frames of a backtrace."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    text = re.sub(r'"jid":"[0-9a-f]{24}"', '"jid":"…"', text)
    text = re.sub(r'"(created|enqueued|failed|retried)_at":\d{10}\.\d{1,9}(?=[,}])', r'"\1_at":"…"', text)
    return re.sub(r'"error_backtrace":"[^"]+"', '"error_backtrace":"…"', text)


def assert_same(store: redis.Redis, name: str) -> None:
    theirs = recorded(name)
    ours = raw_members(store, theirs["key"])
    assert [bare(raw) for raw in ours] == [bare(raw) for raw in theirs["raw"]]


@pytest.fixture(scope="module")
def seconds(url: str) -> Any:  # a generator fixture
    with DjangoClient(url, **SECONDS) as client:
        yield client


def test_every_recorded_case_is_compared() -> None:
    assert names() == {*PUSHES, *FAILURES, *TWICE, *PROMOTED, *ELSEWHERE_TESTED}


def test_the_fixtures_are_what_the_installed_sidekiq_writes(url: str, tmp_path: Path) -> None:
    spare = re.sub(r"/0$", "/15", url)
    done = subprocess.run(
        ["ruby", "record.rb"], cwd=SCRIPTS, env=ruby_environment(spare, INTEROP_GOLDEN=str(tmp_path)),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in names():
        now, then = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")), recorded(name)
        assert (now["call"], now["key"]) == (then["call"], then["key"])
        assert [bare(raw) for raw in now["raw"]] == [bare(raw) for raw in then["raw"]], name


@pytest.mark.parametrize("name", PUSHES)
def test_a_push_has_sidekiqs_bytes(store: redis.Redis, seconds: DjangoClient, name: str) -> None:
    PUSHES[name](seconds)
    assert_same(store, name)


@pytest.mark.parametrize("name", [name for name in PUSHES if "_at" in name])
def test_a_time_given_is_sidekiqs_score(store: redis.Redis, seconds: DjangoClient, name: str) -> None:
    PUSHES[name](seconds)
    assert [score for _, score in store.zrange("schedule", 0, -1, withscores=True)] == recorded(name)["scores"]


@pytest.mark.parametrize("name", ["perform_in", "set_wait"])
def test_a_time_from_now_is_that_much_later_than_the_push(store: redis.Redis, seconds: DjangoClient, name: str) -> None:
    PUSHES[name](seconds)
    ((raw, score),) = store.zrange("schedule", 0, -1, withscores=True)
    assert score - json.loads(raw)["created_at"] == pytest.approx(3600, abs=0.5)


def test_floats_that_ruby_spells_otherwise_have_the_same_value(store: redis.Redis, seconds: DjangoClient) -> None:
    seconds.perform_async("Recorder", 1.0e15, 1.0e16, 1.0e-05, 5.0e-324)
    (ours,) = raw_members(store, "queue:default")
    (theirs,) = recorded("floats_exponent")["raw"]
    assert wire.decode_job(ours)["args"] == wire.decode_job(theirs.encode())["args"]
    assert [type(value) for value in wire.decode_job(ours)["args"]] == [float] * 4


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_job_has_sidekiqs_bytes(store: redis.Redis, url: str, seconds: DjangoClient, name: str) -> None:
    FAILURES[name](seconds)
    with DjangoWorker(url, **SECONDS):
        wait_for_members(store, recorded(name)["key"])
    assert_same(store, name)


@pytest.mark.parametrize("name", TWICE)
def test_a_job_that_failed_twice_has_sidekiqs_bytes(
    store: redis.Redis, url: str, seconds: DjangoClient, name: str
) -> None:
    TWICE[name](seconds)
    with DjangoWorker(url, **SECONDS):
        first = wait_for_members(store, "retry")
        make_due(store, "retry")
        wait_for(lambda: raw_members(store, recorded(name)["key"]) not in ([], first), "the second failure")
    assert_same(store, name)


@pytest.mark.parametrize("name", PROMOTED)
def test_a_job_that_the_scheduler_moved_has_sidekiqs_bytes(
    store: redis.Redis, url: str, seconds: DjangoClient, name: str
) -> None:
    push, waits_in = PROMOTED[name]
    push(seconds)
    if waits_in == "retry":
        with DjangoWorker(url, **SECONDS):
            wait_for_members(store, "retry")
    make_due(store, waits_in)
    with DjangoWorker(url, ELSEWHERE, **SECONDS):
        (ours,) = wait_for_members(store, "queue:default")
    if waits_in == "retry":
        assert_same(store, name)
    (theirs,) = recorded(name)["raw"]
    assert bare(without_enqueued_at(ours)) == bare(without_enqueued_at(theirs))
    assert type(json.loads(ours)["enqueued_at"]) is float


def test_a_malformed_payload_goes_to_the_dead_set_unchanged(store: redis.Redis, url: str) -> None:
    (raw,) = recorded("dead_malformed")["raw"]
    store.lpush("queue:default", raw)
    with DjangoWorker(url):
        assert wait_for_members(store, "dead") == [raw.encode()]
