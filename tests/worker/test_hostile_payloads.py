"""The corpus of hostile payloads through everything that reads payloads: worker, scheduler, reaper, sorted sets."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.corpus import CORPUS, JID, JOB, LAST_ATTEMPT, expect, was_imported, write_canary
from tests.worker.orphans import FOREIGN, left_behind
from tests.worker.rig import QUICK, Rig, enqueue, payload, private, queued, wait_for
from wurk_django import job
from wurk_django.config import log_error
from wurk_django.worker.job_log import formatter
from wurk_django.worker.manager import Manager
from wurk_django.worker.reaper import Reaper
from wurk_django.worker.scheduler import Scheduler

GOOD_WITHIN_S = 2.0
LOUD = replace(QUICK, log_arguments=True)


@pytest.fixture
def calls() -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What the job of the corpus was called with."""
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def accept(*args: Any, **kwargs: Any) -> None:
        found.append((args, kwargs))

    job(name=JOB)(accept)
    return found


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that hostile names point at; the test fails when anything has imported it."""
    write_canary(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    assert not was_imported(tmp_path)


class Logged(logging.StreamHandler):  # type: ignore[type-arg]  # of a text stream
    """Lines as a worker writes them to a file, arguments included; remembers what could not be written."""

    def __init__(self, style: Any) -> None:
        self.raw = io.BytesIO()
        super().__init__(io.TextIOWrapper(self.raw, encoding="utf-8", newline="\n"))
        self.setFormatter(formatter(LOUD, style, terminal=False))
        self.failures: list[str] = []

    def handleError(self, record: logging.LogRecord) -> None:
        self.failures.append(repr(record.msg))

    def lines(self) -> list[str]:
        return self.raw.getvalue().decode().split("\n")[:-1]


@contextmanager
def logged() -> Iterator[None]:
    """Whatever stands in a payload, its log lines can be written and are lines."""
    logger = logging.getLogger("wurk")
    level, text, js = logger.level, Logged("plain"), Logged("json")
    logger.propagate = False  # lone surrogates in captured records break the reports of pytest-xdist
    logger.addHandler(text)
    logger.addHandler(js)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.propagate = True
        logger.setLevel(level)
        logger.removeHandler(text)
        logger.removeHandler(js)
    assert text.failures == js.failures == []
    assert all(re.match(r"(DEBUG|INFO|WARNING|ERROR) \d{4}-|  |$", line) for line in text.lines())
    assert all(isinstance(json.loads(line), dict) for line in js.lines())


@contextmanager
def loud_worker(rig: Rig) -> Iterator[Manager]:
    """A worker with one thread that logs all it can."""
    config = rig.config(concurrency=1, log_arguments=True)
    config.error_handlers.append(log_error)
    with logged():
        manager = rig.manager(config)
        yield manager
        wait_for(lambda: manager.idle)


def named(fate: str) -> list[str]:
    return [name for name in CORPUS if expect(name) == fate]


def good_job_runs(redis: redis_py.Redis, calls: list[Any]) -> None:
    """The worker lives: the next ordinary job runs in time."""
    before, started = len(calls), time.monotonic()
    enqueue(redis, "default", payload(JOB, "good"))
    wait_for(lambda: len(calls) > before, GOOD_WITHIN_S, "the next good job")
    assert time.monotonic() - started < GOOD_WITHIN_S
    assert calls[-1][0] == ("good",)


@pytest.mark.oracle("safety:S-01", "safety:S-04", "safety:S-05", "safety:S-06", "safety:S-07", "safety:S-08")
def test_what_is_no_job_is_in_the_dead_set_byte_for_byte_and_the_worker_lives(
    redis: redis_py.Redis, rig: Rig, calls: list[Any], canary: Path
) -> None:
    with loud_worker(rig):
        for name in named("dead"):
            redis.delete("dead")
            enqueue(redis, "default", CORPUS[name])
            wait_for(lambda: redis.zcard("dead") == 1, what=f"the burial of {name}")
            assert redis.zscore("dead", CORPUS[name]) is not None, name
            good_job_runs(redis, calls)

    assert redis.zcard("retry") == 0
    assert queued(redis) == private(redis) == []
    assert all(args == ("good",) for args, _ in calls)
    assert len(rig.errors) == len(named("dead")), "each is told once"
    assert rig.deaths == []


@pytest.mark.oracle("safety:S-02", "safety:S-07", "safety:S-08", "safety:S-49")
def test_jobs_of_unknown_classes_fail_in_the_ordinary_way_whatever_their_fields_hold(
    redis: redis_py.Redis, rig: Rig, calls: list[Any], canary: Path
) -> None:
    with loud_worker(rig):
        for name in named("fails"):
            redis.delete("dead", "retry")
            enqueue(redis, "default", CORPUS[name])
            wait_for(lambda: redis.zcard("dead") + redis.zcard("retry") == 1, what=f"the booking of {name}")
            where = "dead" if name in LAST_ATTEMPT else "retry"
            assert redis.zcard(where) == 1, name
            stored = json.loads(redis.zrange(where, 0, 0)[0])
            assert stored["error_class"] == "wurk_django.errors.UnknownJob", name
            assert "failed_at" in stored or "retried_at" in stored, name
            assert stored["queue"] == "default", name
            good_job_runs(redis, calls)

    assert queued(redis) == private(redis) == []
    assert all(args == ("good",) for args, _ in calls)


@pytest.mark.oracle("safety:S-06", "safety:S-07", "safety:S-08", "safety:S-10", "safety:S-11", "safety:S-13")
def test_jobs_with_odd_fields_run_and_are_removed_by_their_bytes(
    redis: redis_py.Redis, rig: Rig, calls: list[Any], canary: Path
) -> None:
    arguments: dict[str, tuple[Any, ...]] = {}
    with loud_worker(rig):
        for name in named("runs"):
            before = len(calls)
            enqueue(redis, "default", CORPUS[name])
            wait_for(lambda before=before: len(calls) > before, what=f"the run of {name}")
            arguments[name] = calls[-1][0]
            if before % 10 == 0:
                good_job_runs(redis, calls)

    assert queued(redis) == private(redis) == []
    assert redis.exists("retry", "dead") == 0
    assert redis.keys("queue:*") == []
    assert rig.errors == []
    assert arguments["duplicate-args"] == (1,)
    assert arguments["duplicate-key-in-an-argument"] == ({"a": 2},)
    assert arguments["number-64-bits"] == (2**63,)
    assert arguments["number-4300-digits"] == (int("9" * 4300),)
    assert type(arguments["number-whole-float"][0]) is float


@pytest.mark.oracle("safety:S-08", "safety:S-13", "core:D8")
@pytest.mark.parametrize("name", ["schedule", "retry"])
def test_the_scheduler_moves_every_payload_and_writes_into_no_private_list(
    name: str, redis: redis_py.Redis, rig: Rig
) -> None:
    payloads = set(CORPUS.values())
    redis.zadd(name, dict.fromkeys(payloads, 1.0))
    scheduler = Scheduler(rig.config())

    assert scheduler.enqueue_due() == len(payloads)

    assert redis.zcard(name) == 0
    assert rig.errors == []
    lists = redis.keys("queue:*")
    assert not any(b"|" in key or key != key.strip() for key in lists)
    assert sum(redis.llen(key) for key in lists) + redis.zcard("dead") == len(payloads)
    buried = set(redis.zrange("dead", 0, -1))
    assert buried <= payloads, "byte for byte"
    for odd in ("pipe", "private-list", "newline", "nul", "c1", "surrogate", "long", "number", "empty"):
        assert CORPUS[f"odd-queue-{odd}"] in buried


@pytest.mark.oracle("safety:S-08", "safety:S-11")
def test_the_reaper_brings_every_payload_back_as_it_is(redis: redis_py.Redis, rig: Rig) -> None:
    payloads = list(CORPUS.values())
    config = rig.config(["q"], poison_limit=len(payloads))  # most of them have one jid
    config.freeze()
    for raw in payloads:
        redis.lpush(FOREIGN, raw)
    left_behind(redis, FOREIGN, count=0)

    assert Reaper(config).sweep() == len(payloads)

    assert queued(redis, "q") == payloads
    assert rig.errors == []


@pytest.mark.oracle("safety:S-08", "safety:S-11")
def test_the_reaper_buries_every_payload_that_has_come_back_too_often_and_forges_no_log_line(
    redis: redis_py.Redis, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    config = rig.config(["q"])
    config.freeze()
    named = [raw for raw in CORPUS.values() if b"c0ffee00c0ffee00c0ffee00" in raw and len(raw) < 100_000]
    redis.set("super_fetch:recovered:c0ffee00c0ffee00c0ffee00", 3)
    for raw in named:
        redis.lpush(FOREIGN, raw)
    left_behind(redis, FOREIGN, count=0)

    Reaper(config).sweep()

    assert redis.zcard("dead") > len(named) / 2
    assert redis.zcard("dead") + redis.llen("queue:q") == len(named)
    lines = [record.getMessage() for record in caplog.records]
    assert not [line for line in lines if any(ord(character) < 32 for character in line)]


@pytest.mark.oracle("safety:S-11")
def test_payloads_go_back_to_their_queue_at_a_hard_stop_as_they_were(redis: redis_py.Redis, rig: Rig) -> None:
    small = [raw for raw in CORPUS.values() if len(raw) < 100_000]
    dispatcher = rig.dispatcher()
    enqueue(redis, "default", *small)
    works = [dispatcher.take() for _ in small]

    assert dispatcher.requeue_running([work for work in works if work is not None]) == len(small)

    assert queued(redis) == small


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["class", "args", "kwargs", "jid", "queue", "retry", "retry_count", "retry_for", "retry_queue", "failed_at",
          "retried_at", "created_at", "enqueued_at", "at", "tags", "wrapped", "bid", "log_level", "backtrace", "dead",
          "error_backtrace", "error_message", "encrypt", "display_class", "locale"]  # fmt: skip


@pytest.mark.oracle("safety:S-08")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4), scheduled=st.booleans())
def test_any_json_value_in_any_field_ends_in_one_known_place(
    worker: Any, calls: list[Any], redis: redis_py.Redis, fields: dict[str, Any], scheduled: bool
) -> None:
    redis.delete("retry", "dead")
    calls.clear()
    item = {"class": JOB, "args": [], "jid": JID, "queue": "default", **fields}
    raw = json.dumps(item).encode("utf-8", "surrogatepass")
    if scheduled:
        redis.zadd("schedule", {raw: 1})
        worker.scheduler.enqueue_due()
    else:
        enqueue(redis, "default", raw)

    def place() -> list[str]:
        found = [name for name in ("retry", "dead") if redis.zcard(name)]
        elsewhere = [key for key in redis.keys("queue:*") if key != b"queue:default" and b"|" not in key]
        found += ["run"] * len(calls) + ["another queue"] * len(elsewhere)
        redis.delete(*elsewhere, "nothing")
        return found

    ended = wait_for(place)
    wait_for(lambda: worker.idle)
    assert len(ended) == 1
    assert private(redis) == []


@pytest.fixture
def worker(rig: Rig) -> Any:
    return rig.launcher(rig.config(concurrency=1, scheduler_initial_wait=60, heartbeat_interval=60))
