"""Jobs that fail in a running worker: what stands where afterwards, and who was told."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
import redis as redis_py

from tests.support.servers import RedisServer
from tests.worker.rig import Recorder, Rig, enqueue, payload, private, queued, scores, stays, wait_for
from wurk_django.client import Client
from wurk_django.errors import RedisRefused
from wurk_django.worker.control import Shutdown, Skip
from wurk_django.worker.manager import Manager


def counts(manager: Manager) -> tuple[int, int]:
    """Processed and failed since the last call."""
    return manager._tally.take()


@pytest.mark.oracle("core:R1")
def test_a_failed_job_is_in_the_retry_set_and_nowhere_else(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.failing_job(ValueError("boom"))
    raw = payload("work", 10**17 + 1, 1.0, jid="one", unknown={"kept": [1]})
    manager = rig.manager()
    before = time.time()

    enqueue(redis, "default", raw)
    wait_for(lambda: redis.zcard("retry"))
    wait_for(lambda: manager.idle)

    [(job, score)] = scores(redis, "retry")
    assert 15 <= score - before <= 24 + 2
    assert (job["retry_count"], job["error_class"], job["error_message"]) == (0, "ValueError", "boom")
    assert "retried_at" not in job
    assert abs(job["failed_at"] / 1000 - before) < 2
    assert (job["jid"], job["args"], job["unknown"]) == ("one", [10**17 + 1, 1.0], {"kept": [1]})
    assert queued(redis) == private(redis) == []
    assert redis.zcard("dead") == 0
    assert counts(manager) == (1, 1)
    assert [context["context"] for _, context in rig.errors] == ["Job raised exception"]


@pytest.mark.oracle("core:R3", "core:D24", "reliability:A15")
def test_death_handlers_run_before_the_job_moves_to_the_dead_set(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    raw = payload("work", retry_count=25, failed_at=1)
    seen: list[tuple[list[bytes], int]] = []
    config = rig.config()
    config.death_handlers.append(lambda *_: seen.append((private(redis), redis.zcard("dead"))))
    manager = rig.manager(config)

    enqueue(redis, "default", raw)
    wait_for(lambda: redis.zcard("dead"))
    wait_for(lambda: manager.idle)

    assert seen == [([raw], 0)], "still ours while the handlers run"
    [(job, score)] = scores(redis, "dead")
    assert abs(score - time.time()) < 5
    assert job["retry_count"] == 26
    assert private(redis) == []
    assert redis.zcard("retry") == 0


def test_a_broken_death_handler_is_told_and_the_others_run(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.failing_job(ValueError("boom"))
    config = rig.config()
    config.death_handlers.insert(0, lambda *_: 1 / 0)
    rig.manager(config)

    enqueue(redis, "default", payload(retry=0))
    wait_for(lambda: redis.zcard("dead"))

    assert len(rig.deaths) == 1
    assert rig.messages()[0] == "death handler: division by zero"


@pytest.mark.oracle("core:R5")
def test_without_retries_the_death_handlers_are_all_that_remains(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    manager = rig.manager()

    enqueue(redis, "default", payload(retry=False))
    wait_for(lambda: rig.deaths)
    wait_for(lambda: manager.idle)

    assert len(rig.deaths) == 1
    assert redis.exists("retry", "dead") == 0
    assert private(redis) == []


@pytest.mark.oracle("core:R6")
def test_a_job_that_must_not_be_kept_is_dropped_and_its_handlers_see_when(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    rig.manager()

    enqueue(redis, "default", payload(retry=0, dead=False))
    wait_for(lambda: rig.deaths)
    wait_for(lambda: private(redis) == [])
    assert redis.exists("retry", "dead") == 0
    assert abs(rig.deaths[0][0]["discarded_at"] / 1000 - time.time()) < 5

    enqueue(redis, "default", payload(retry=0))
    wait_for(lambda: redis.zcard("dead"))
    assert len(rig.deaths) == 2
    assert "discarded_at" not in rig.deaths[1][0]


@pytest.mark.oracle("core:R16", "core:D23", "safety:S-02")
def test_a_job_of_an_unknown_class_is_retried(redis: redis_py.Redis, rig: Rig) -> None:
    manager = rig.manager()
    item = {"class": "os.system", "args": ["true"], "jid": "a"}

    enqueue(redis, "default", json.dumps(item).encode())
    wait_for(lambda: redis.zcard("retry"))
    wait_for(lambda: manager.idle)

    [(job, _)] = scores(redis, "retry")
    assert job["error_class"] == "wurk_django.errors.UnknownJob"
    assert redis.zcard("dead") == 0
    assert counts(manager) == (1, 1)


@pytest.mark.oracle("reports:P08")
def test_a_job_whose_class_arrives_with_the_next_deploy_is_still_there(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    launcher = rig.launcher()
    enqueue(redis, "default", payload("tomorrow", "a"), payload("tomorrow", "b"))
    wait_for(lambda: redis.zcard("retry") == 2)

    jobs.job("tomorrow")
    for member in redis.zrange("retry", 0, -1):
        redis.zadd("retry", {member: 1})

    wait_for(lambda: len(jobs.calls) == 2)
    wait_for(lambda: launcher.idle)
    assert sorted(jobs.calls) == [("a",), ("b",)]
    assert redis.zcard("retry") == 0


def raise_deep() -> None:
    """A shutdown that user code wrapped twice, once by hand and once by accident."""
    try:
        try:
            raise Shutdown
        except Shutdown as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError:
        raise KeyError("by accident")  # noqa: B904  # the accident is the point


def raise_shutdown() -> None:
    raise Shutdown


@pytest.mark.oracle("core:R11")
@pytest.mark.parametrize("act", [raise_shutdown, raise_deep])
def test_a_shutdown_however_deep_stores_nothing_and_keeps_the_job(
    act: Any, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job(act=lambda *_: act())
    raw = payload()
    manager = rig.manager()

    enqueue(redis, "default", raw)
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert private(redis) == [raw]
    assert redis.exists("retry", "dead") == 0
    assert rig.errors == []


@pytest.mark.oracle("core:R12")
def test_circular_causes_end_in_an_ordinary_retry(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    jobs.failing_job(first)
    rig.manager()

    enqueue(redis, "default", payload())

    wait_for(lambda: redis.zcard("retry") == 1)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), BaseException("base")])
def test_a_job_that_raises_what_ends_programs_has_failed_and_the_worker_lives(
    error: BaseException, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(error, "exits")
    jobs.job()
    rig.manager(rig.config(concurrency=1))

    enqueue(redis, "default", payload("exits"), payload())

    wait_for(lambda: redis.zcard("retry") == 1)
    wait_for(lambda: len(jobs.calls) == 2)


def test_a_job_that_was_dealt_with_elsewhere_is_acknowledged_and_not_reported(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(Skip())
    manager = rig.manager()

    enqueue(redis, "default", payload())
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert private(redis) == []
    assert redis.exists("retry", "dead") == 0
    assert rig.errors == []
    assert counts(manager) == (1, 1), "Sidekiq's totals count it as failed"


@pytest.mark.oracle("reliability:A11")
def test_what_is_no_json_is_buried_byte_for_byte_and_reported(redis: redis_py.Redis, rig: Rig) -> None:
    raw = b'{"class": "work", \xff'
    manager = rig.manager(rig.config(dead_max_jobs=3))
    for number in range(3):
        redis.zadd("dead", {f"old {number}": number + time.time() - 100})

    enqueue(redis, "default", raw)
    wait_for(lambda: redis.zscore("dead", raw))
    wait_for(lambda: manager.idle)

    assert redis.zcard("dead") == 2, "trimmed as Sidekiq trims"
    assert private(redis) == []
    [(_, context)] = rig.errors
    assert context == {"context": "Invalid JSON for job", "jobstr": raw}
    assert rig.deaths == []
    assert counts(manager) == (0, 0)


@pytest.mark.parametrize("raw", [b"2", b"null", b'"text"', b"[]", b"", b"true"])
@pytest.mark.oracle("core:D9", "safety:S-08")
def test_json_that_is_no_object_is_buried(raw: bytes, redis: redis_py.Redis, rig: Rig) -> None:
    rig.manager()

    enqueue(redis, "default", raw)

    wait_for(lambda: redis.zscore("dead", raw))
    wait_for(lambda: private(redis) == [])
    assert redis.zcard("dead") == 1


@pytest.mark.oracle("reports:P09", "safety:R11")
def test_failures_are_booked_while_redis_is_full(
    full_server: redis_py.Redis, own_server: RedisServer, rig: Rig, jobs: Recorder
) -> None:
    full = threading.Event()

    def fail(*_: object) -> None:
        assert full.wait(5)
        raise ValueError("boom")

    jobs.job(act=fail)
    config = rig.config(url=own_server.url)
    manager = rig.manager(config)
    enqueue(full_server, "default", payload(jid="again"), payload(jid="last", retry=0))
    wait_for(lambda: len(jobs.calls) == 2)
    full_server.config_set("maxmemory", 1)
    full.set()

    wait_for(lambda: full_server.zcard("retry") == 1)
    wait_for(lambda: full_server.zcard("dead") == 1)
    wait_for(lambda: manager.idle)

    assert private(full_server) == []
    with pytest.raises(RedisRefused, match="OOM"):
        Client(config).push({"class": "work", "args": []})


def test_middleware_cannot_change_what_is_stored_of_a_failed_job(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    class Opens:
        def call(self, job: object, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
            payload["args"] = ["secret"]
            payload["new"] = 1
            return call_next()

    jobs.failing_job(ValueError("boom"))
    config = rig.config()
    config.server_middleware.add(Opens)
    rig.manager(config)

    enqueue(redis, "default", payload("work", "sealed"))
    wait_for(lambda: redis.zcard("retry"))

    [(job, _)] = scores(redis, "retry")
    assert jobs.calls == [("secret",)]
    assert job["args"] == ["sealed"]
    assert "new" not in job


def test_a_middleware_that_does_not_call_on_ends_the_job(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    class Stops:
        def call(self, job: object, payload: dict[str, Any], queue: str, call_next: Any) -> None:
            stopped.set()

    stopped = threading.Event()
    jobs.job()
    config = rig.config()
    config.server_middleware.add(Stops)
    manager = rig.manager(config)

    enqueue(redis, "default", payload())
    assert stopped.wait(5)
    wait_for(lambda: manager.idle)

    assert jobs.calls == []
    assert private(redis) == []


@pytest.mark.oracle("core:L5")
def test_an_error_handler_that_fails_is_logged_and_the_others_still_run(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.failing_job(ValueError("the original"))
    config = rig.config()
    config.error_handlers.insert(0, lambda *_: 1 / 0)
    rig.manager(config)

    enqueue(redis, "default", payload())
    wait_for(lambda: rig.errors)

    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "ERROR HANDLER THREW AN ERROR" in text
    assert "the original" in text
    assert str(rig.errors[0][0]) == "the original"


def test_a_retry_queue_that_the_payload_names_cannot_be_a_private_list(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("boom"))
    rig.manager()

    enqueue(redis, "default", payload(retry_queue="x|host|1|0", queue="y|host|1|0"))
    wait_for(lambda: redis.zcard("retry"))

    [(job, _)] = scores(redis, "retry")
    assert job["queue"] == "default"
    assert stays(lambda: redis.keys("*|host|*") == [], 0.05)
