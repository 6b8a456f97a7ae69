"""A job failing in one language is retried in the other, dies there, and either scheduler moves the other's members."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
import redis

from tests.interop.django_peer import DjangoClient, DjangoWorker
from tests.interop.watching import (
    make_due,
    private_lists,
    raw_members,
    wait_for_member,
    wait_for_members,
    wait_until_ran,
    without_enqueued_at,
)
from tests.support.ruby import PeerClient, PeerWorker, RubyClient, RubyWorker
from wurk_django import wire

pytestmark = pytest.mark.interop

WorkerMaker = Callable[..., PeerWorker]
ELSEWHERE = ["elsewhere"]  # a worker of this queue moves what is due in any queue, and runs none of it
MESSAGE = "interop failure: é <b>&</b>"
PYTHON, RUBY = "python", "ruby"


@pytest.fixture(params=[PYTHON, RUBY])
def here(request: pytest.FixtureRequest) -> str:
    """The language in which the story starts; the other one takes over."""
    return str(request.param)


@pytest.fixture
def workers(here: str) -> tuple[WorkerMaker, WorkerMaker]:
    return (DjangoWorker, RubyWorker) if here == PYTHON else (RubyWorker, DjangoWorker)


@pytest.fixture
def client(here: str, ruby: RubyClient, django: DjangoClient) -> PeerClient:
    return django if here == PYTHON else ruby


def other(language: str) -> str:
    return RUBY if language == PYTHON else PYTHON


def test_a_job_that_fails_in_one_language_is_retried_and_done_in_the_other(
    store: redis.Redis, url: str, client: PeerClient, workers: tuple[WorkerMaker, WorkerMaker], here: str
) -> None:
    first, second = workers
    jid = client.perform_async("Picky", here, custom={"deep": ["é"]})
    with first(url):
        failed = wait_for_member(store, "retry", jid, retry_count=0)
        assert not private_lists(store)
    assert (failed["error_class"], failed["error_message"]) == ("RuntimeError", MESSAGE)
    assert "retried_at" not in failed

    make_due(store, "retry")
    with second(url):
        (row,) = wait_until_ran(store, jid)

    assert (row["by"], row["args"]) == (other(here), [here])
    assert raw_members(store, "retry") == []
    assert raw_members(store, "queue:default") == []


def test_a_second_failure_in_the_other_language_counts_on_and_keeps_the_first_failures_time(
    store: redis.Redis, url: str, client: PeerClient, workers: tuple[WorkerMaker, WorkerMaker]
) -> None:
    first, second = workers
    jid = client.perform_async("Failing", 1, custom={"deep": ["é"]})
    with first(url):
        failed = wait_for_member(store, "retry", jid, retry_count=0)

    make_due(store, "retry")
    now = time.time()
    with second(url):
        again = wait_for_member(store, "retry", jid, retry_count=1)
    ((_, score),) = store.zrange("retry", 0, -1, withscores=True)

    assert again["failed_at"] == failed["failed_at"]
    assert type(again["failed_at"]) is type(failed["failed_at"])
    assert again["created_at"] == failed["created_at"]
    assert again["custom"] == {"deep": ["é"]}
    retried_at = wire.read_time(again["retried_at"])
    assert retried_at is not None
    assert now - 1 < retried_at < time.time() + 1
    assert 16 <= score - retried_at <= 16 + 20


@pytest.mark.parametrize("limit", [1, 2])
def test_a_job_whose_last_allowed_failure_comes_in_the_other_language_dies_there(
    store: redis.Redis, url: str, client: PeerClient, workers: tuple[WorkerMaker, WorkerMaker], limit: int
) -> None:
    first, second = workers
    jid = client.perform_async("Failing", 1, retry=limit)
    for count in range(limit):
        make_due(store, "retry")
        with first(url):
            wait_for_member(store, "retry", jid, retry_count=count)

    make_due(store, "retry")
    with second(url):
        dead = wait_for_member(store, "dead", jid)

    assert (dead["retry_count"], dead["error_message"]) == (limit, MESSAGE)
    assert raw_members(store, "retry") == []


def test_retry_zero_dies_at_once_and_retry_false_leaves_nothing_also_when_the_other_pushed_it(
    store: redis.Redis, url: str, client: PeerClient, workers: tuple[WorkerMaker, WorkerMaker]
) -> None:
    client.perform_async("NeverRetried", 1)
    jid = client.perform_async("DiesAtOnce", 1)
    last = client.perform_async("Recorder", 1)
    with workers[1](url, concurrency=1):
        wait_for_member(store, "dead", jid, retry_count=0)
        wait_until_ran(store, last)

    assert len(wait_for_members(store, "dead")) == 1
    assert raw_members(store, "retry") == []
    assert (store.get("stat:processed"), store.get("stat:failed")) == (b"3", b"2")


def test_a_backtrace_written_in_one_language_is_read_in_the_other(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient
) -> None:
    ours = [django.perform_async("WithBacktrace"), django.perform_async("WithThreeLines")]
    with DjangoWorker(url):
        wait_for_members(store, "retry", 2)
    lines = [ruby.find("retry", jid)["backtrace"] for jid in ours]
    assert re.search(r"jobs\.py:\d+:in 'deeper'$|jobs\.py:\d+:in '.*deeper'$", lines[0][0]), "innermost frame first"
    assert len(lines[0]) > 1
    assert len(lines[1]) == 3

    store.delete("retry")
    theirs = [ruby.perform_async("WithBacktrace"), ruby.perform_async("WithThreeLines")]
    with RubyWorker(url):
        packed = [wait_for_member(store, "retry", jid)["error_backtrace"] for jid in theirs]
    read = [wire.unpack_backtrace(text) for text in packed]
    assert read[0] == [f"app/jobs/step_{n}.rb:{n}:in `é{n}'" for n in range(1, 9)]
    assert read[1] == read[0][:3]


def test_our_scheduler_moves_rubys_members_and_changes_nothing_but_the_time(
    store: redis.Redis, url: str, ruby: RubyClient
) -> None:
    planned = ruby.perform_in("Recorder", 3600, "é", 1.0, None)
    failing = ruby.perform_async("Failing", 1, custom={"z": 1, "a": 2})
    with RubyWorker(url):
        wait_for_member(store, "retry", failing)
    before = [*raw_members(store, "retry"), *raw_members(store, "schedule")]

    make_due(store, "retry", "schedule")
    with DjangoWorker(url, ELSEWHERE):
        moved = wait_for_members(store, "queue:default", 2)

    assert {without_enqueued_at(raw) for raw in moved} == {without_enqueued_at(raw) for raw in before}
    assert {json.loads(raw)["jid"] for raw in moved} == {planned, failing}
    assert all(type(json.loads(raw)["enqueued_at"]) is int for raw in moved)
    assert raw_members(store, "retry") + raw_members(store, "schedule") == []
    assert b"default" in store.smembers("queues")


@pytest.mark.oracle("core:V1")
def test_rubys_scheduler_moves_our_members_and_both_then_read_them(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient
) -> None:
    planned = django.call("perform_in", interval=3600, args=["é"], **{"class": "Recorder"})
    failing = django.call("perform_async", args=["ruby"], kwargs={"note": "é"}, **{"class": "Picky"})
    with RubyWorker(url):  # the kwargs mean nothing to it, and it keeps them
        wait_for_member(store, "retry", failing, kwargs={"note": "é"})
    before = {
        row["jid"]: row for row in map(json.loads, [*raw_members(store, "retry"), *raw_members(store, "schedule")])
    }

    make_due(store, "retry", "schedule")
    now = time.time()
    with RubyWorker(url, ELSEWHERE):
        moved = {row["jid"]: row for row in map(json.loads, wait_for_members(store, "queue:default", 2))}

    assert set(moved) == {planned, failing}
    for jid, row in moved.items():
        assert type(row["enqueued_at"]) is float
        assert type(row["created_at"]) is int
        assert row == {**before[jid], "enqueued_at": row["enqueued_at"]}
        created_at, enqueued_at = wire.read_time(row["created_at"]), wire.read_time(row["enqueued_at"])
        assert created_at is not None
        assert enqueued_at is not None
        assert now - 60 < created_at <= now <= enqueued_at + 1 < time.time() + 2
    with DjangoWorker(url):
        first, second = wait_until_ran(store, planned, failing)
    assert first == {"by": PYTHON, "class": "Recorder", "jid": planned, "args": ["é"]}
    assert second == {"by": PYTHON, "class": "Picky", "jid": failing, "args": ["ruby"], "kwargs": {"note": "é"}}


def test_the_schedulers_of_both_languages_share_the_sets_and_move_each_member_once(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient
) -> None:
    when = time.time() + 3
    args = [[number] for number in range(100)]
    jids = [*ruby.push_bulk({"class": "Recorder", "args": args, "at": when})]
    jids += django.push_bulk({"class": "Recorder", "args": args, "at": when})
    with RubyWorker(url), DjangoWorker(url):
        rows = wait_until_ran(store, *jids)

    assert len(rows) == 200
    assert raw_members(store, "schedule") == []


@pytest.mark.parametrize("set_name", ["schedule", "retry"])
def test_sidekiqs_reschedule_finds_our_member_by_its_bytes_and_makes_no_second_one(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient, set_name: str
) -> None:
    args = ['é \u2028 \x7f / \\ " \n', 1.0, -0.5, None, 2**70, {"b": [], "a": {"": True}}]
    if set_name == "schedule":
        jid = django.perform_in("Recorder", 3600, *args)
    else:
        jid = django.perform_async("WithBacktrace", *args)
        with DjangoWorker(url):
            wait_for_member(store, "retry", jid)
    before = raw_members(store, set_name)

    at = time.time() + 7200
    ruby.call("reschedule", set=set_name, jid=jid, at=at)

    assert raw_members(store, set_name) == before
    ((_, score),) = store.zrange(set_name, 0, -1, withscores=True)
    assert score == pytest.approx(at, abs=1e-3)


def test_a_ruby_class_that_we_do_not_know_goes_to_retry_and_the_next_job_runs(
    store: redis.Redis, url: str, ruby: RubyClient
) -> None:
    unknown = [ruby.push({"class": name, "args": [1]}) for name in ("Only::In::Ruby", "os.system", "Kernel")]
    good = ruby.perform_async("Recorder", 1)
    with DjangoWorker(url, concurrency=1):
        for jid in unknown:
            wait_for_member(store, "retry", jid, retry_count=0)
        wait_until_ran(store, good)
