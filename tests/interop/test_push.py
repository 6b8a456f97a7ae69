"""Each language runs what the other pushed: at once, later, in bulk, with fields of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.interop.django_peer import DjangoClient, DjangoWorker
from tests.interop.watching import (
    DEADLINE_S,
    make_due,
    private_lists,
    raw_members,
    wait_for_member,
    wait_for_members,
    wait_until_ran,
)
from tests.support.ruby import PeerClient, PeerWorker, RubyClient, RubyWorker, wait_for

pytestmark = pytest.mark.interop

ARGUMENTS: list[Any] = [1, 'é 日本 \u2028 \x7f / \\ " \n', None, True, 1.0, -0.5, 2**70, [], {"a": [{}, {"b": None}]}]
BULK = 250

WorkerMaker = Callable[..., PeerWorker]


@pytest.fixture(params=["ruby to python", "python to ruby"])
def pair(request: pytest.FixtureRequest, ruby: RubyClient, django: DjangoClient) -> tuple[PeerClient, WorkerMaker, str]:
    """Who pushes, who works, and the worker's name in what the jobs write down."""
    if request.param == "ruby to python":
        return ruby, DjangoWorker, "python"
    return django, RubyWorker, "ruby"


def test_a_job_pushed_by_one_runs_in_the_other_with_equal_arguments(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    jid = client.perform_async("Recorder", *ARGUMENTS)

    with worker(url):
        (row,) = wait_until_ran(store, jid)

    assert row == {"by": name, "class": "Recorder", "jid": jid, "args": ARGUMENTS}
    assert [type(value) for value in row["args"]] == [type(value) for value in ARGUMENTS]
    assert raw_members(store, "queue:default") == []
    assert private_lists(store) == []
    assert store.smembers("queues") == {b"default"}
    assert store.get("stat:processed") == b"1"
    assert not int(store.get("stat:failed") or 0)


def test_jobs_for_later_run_in_the_other_and_not_before_their_time(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    with worker(url):
        now = time.time()
        soon = [client.perform_in("Recorder", 0.8, "in"), client.perform_at("Recorder", now + 1, "at")]
        late = client.perform_in("Recorder", 3600, "late")
        assert len(raw_members(store, "schedule")) == 3

        rows = wait_until_ran(store, *soon)

    assert time.time() >= now + 1
    assert [(row["by"], row["args"]) for row in rows] == [(name, ["in"]), (name, ["at"])]
    assert [json.loads(raw)["jid"] for raw in raw_members(store, "schedule")] == [late]


def test_a_bulk_push_runs_in_the_other_each_job_once(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    jids = client.perform_bulk("Recorder", [[number, "é"] for number in range(BULK)])
    assert len(set(jids)) == BULK

    with worker(url, concurrency=5):
        rows = wait_until_ran(store, *jids)

    assert [row["args"] for row in rows] == [[number, "é"] for number in range(BULK)]
    assert {row["by"] for row in rows} == {name}
    assert store.get("stat:processed") == str(BULK).encode()


def test_the_queue_and_the_options_of_a_class_reach_the_other(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    jid = client.perform_async("Tagged", 1)
    payload = wait_for_member(store, "queue:low", jid)
    assert (payload["retry"], payload["tags"]) == (5, ["alpha", "ünïcode"])

    with worker(url, ["default", "low"]):
        (row,) = wait_until_ran(store, jid)

    assert (row["by"], row["class"]) == (name, "Tagged")


def test_an_item_with_a_jid_a_queue_and_unknown_fields_of_its_own_is_run(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    jid = client.push({"class": "Recorder", "args": [1], "jid": "own-jid", "queue": "own", "custom": {"k": [1.0]}})
    assert jid == "own-jid"
    assert wait_for_member(store, "queue:own", jid)["custom"] == {"k": [1.0]}

    with worker(url, ["own"]):
        (row,) = wait_until_ran(store, jid)

    assert row["by"] == name


def test_a_bulk_with_a_time_for_each_lands_in_the_schedule_and_runs_in_the_other(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, worker, name = pair
    at = [2_000_000_000, 2_000_000_000.5]
    jids = client.push_bulk({"class": "Recorder", "args": [[1], [2]], "at": at})
    assert [score for _, score in store.zrange("schedule", 0, -1, withscores=True)] == at

    make_due(store, "schedule")
    with worker(url):
        rows = wait_until_ran(store, *jids)

    assert [(row["by"], row["args"]) for row in rows] == [(name, [1]), (name, [2])]


def test_workers_of_both_languages_share_a_queue_and_run_each_job_once(
    store: redis.Redis, url: str, ruby: RubyClient, django: DjangoClient
) -> None:
    with RubyWorker(url), DjangoWorker(url):
        jids = [*ruby.perform_bulk("Recorder", [[n] for n in range(BULK)])]
        jids += django.perform_bulk("Recorder", [[n] for n in range(BULK)])
        rows = wait_until_ran(store, *jids)

    assert len(rows) == 2 * BULK
    assert private_lists(store) == []
    assert store.get("stat:processed") == str(2 * BULK).encode()


def test_a_job_running_at_the_stop_of_one_worker_is_run_by_the_other(
    store: redis.Redis, url: str, pair: tuple[PeerClient, WorkerMaker, str]
) -> None:
    client, other, name = pair
    first: WorkerMaker = RubyWorker if other is DjangoWorker else DjangoWorker
    jid = client.perform_async("Waiting", "release")
    # One thread: Sidekiq puts the job back while idle threads still block in BRPOP, and kills the one that takes it.
    with first(url, concurrency=1, timeout_s=1) as worker:
        wait_for(lambda: int(store.hget(worker.identity, "busy") or 0) == 1, "a busy worker", DEADLINE_S)
        before = wait_for_work(store, worker.identity)
    assert [json.loads(raw) for raw in wait_for_members(store, "queue:default")] == [before]
    assert worker.returncode == 0

    store.rpush("release", "go", "go")
    with other(url):
        (row,) = wait_until_ran(store, jid)

    assert row["by"] == name
    assert raw_members(store, "retry") == []


def wait_for_work(store: redis.Redis, identity: str) -> dict[str, Any]:
    """The payload of the one job that a process reports as running."""

    def look() -> list[bytes]:
        return list(store.hvals(f"{identity}:work")) or list(store.hvals(f"{identity}:workers"))

    (work,) = wait_for(look, "a row of running work", DEADLINE_S)
    payload: dict[str, Any] = json.loads(json.loads(work)["payload"])
    return payload
