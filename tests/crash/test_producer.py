"""Producers that die or lose their line in a push: an error or a job, never two jobs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.crash.harness import Stage
from tests.support.faults import CutReply, Kill, LoseReply, LoseRequest, named
from tests.support.proxy import Action
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import RedisUnavailable

push_command = named("LPUSH")


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    """A producer in this process; it talks through the proxy."""
    config = Config(redis=RedisOptions(stage.proxy.url, read_timeout_s=0.3))
    yield Client(config)
    config.reset_redis_pools()


def queued(stage: Stage) -> list[str]:
    return [json.loads(raw)["jid"] for raw in stage.redis.lrange("queue:default", 0, -1)]


@pytest.mark.crash
@pytest.mark.oracle("safety:K1")
@pytest.mark.parametrize(("moment", "extra"), [(Kill.before, 0), (Kill.after, 1)])
def test_a_producer_killed_in_its_third_push_leaves_that_job_once_or_not_at_all(
    moment: Callable[[int], object], extra: int, stage: Stage
) -> None:
    producer = stage.python("-m", "tests.crash.project.produce", "5")
    stage.proxy.on(push_command, moment(producer.pid), skip=2)

    assert producer.wait() == -signal.SIGKILL, producer.output

    stage.settle()
    told = producer.output.split()
    assert len(told) == 2
    found = queued(stage)
    assert len(found) == len(set(found)) == 2 + extra
    assert set(told) <= set(found)


@pytest.mark.oracle("safety:K1", "safety:R1", "safety:R2", "reliability:C2")
@pytest.mark.parametrize(
    ("fault", "jobs"),
    [
        (LoseRequest(), 0),
        (LoseRequest(hang=True), 0),
        (LoseReply(), 1),
        (LoseReply(hang=True), 1),
        (LoseReply(reset=True), 1),
        (CutReply(2, hang=True), 1),
    ],
)
def test_a_push_whose_answer_does_not_come_is_an_error_and_at_most_one_job(
    fault: Action, jobs: int, stage: Stage, client: Client
) -> None:
    stage.proxy.on(push_command, fault)

    with pytest.raises(RedisUnavailable):
        client.push({"class": "Work", "args": []})

    assert len(queued(stage)) == jobs
    client.push({"class": "Work", "args": []})
    assert len(queued(stage)) == jobs + 1


@pytest.mark.oracle("safety:R2")
def test_a_bulk_push_that_loses_one_answer_stops_there_and_repeats_no_slice(stage: Stage, client: Client) -> None:
    stage.proxy.on(push_command, LoseReply(), skip=1)

    with pytest.raises(RedisUnavailable):
        client.push_bulk({"class": "Work", "args": [[]] * 2500})

    found = queued(stage)
    assert len(found) == len(set(found)) == 2000


@pytest.mark.oracle("safety:R2")
@pytest.mark.parametrize("fault", [LoseRequest(), LoseReply()])
def test_a_job_for_later_is_scheduled_once_even_when_the_answer_was_lost(
    fault: Action, stage: Stage, client: Client
) -> None:
    stage.proxy.on(named("ZADD"), fault)

    client.push({"class": "Work", "args": [], "at": time.time() + 60})

    assert stage.redis.zcard("schedule") == 1
