"""Many entries at once: each once, in bounded slices, whatever moves meanwhile; cancelled, resumed, bounded."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis as redis_py

from tests.api.conftest import Fill, payload
from tests.support.faults import LoseReply, script
from tests.support.proxy import Proxy
from wurk_django.api import Bulk, DeadSet, JobSet, Progress, RetrySet, ScheduledSet, bulk
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import RedisUnavailable
from wurk_django.storage import sorted_sets


def jids(raws: list[bytes]) -> list[str]:
    return [json.loads(raw)["jid"] for raw in raws]


@pytest.mark.parametrize("step", [0.0, 1.0])
def test_all_entries_are_queued_once_the_earliest_first(
    step: float, redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    raws = fill("retry", 1200, step=step, retry_count=3)

    progress = RetrySet(config).retry_all()

    assert progress == Progress("done", total=1200, done=1200)
    queued = redis.lrange("queue:default", 0, -1)[::-1]
    assert jids(queued) == jids(raws)
    assert {json.loads(raw)["retry_count"] for raw in queued} == {2}


def test_the_due_time_does_not_matter_and_the_count_stays(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("schedule", 3, time.time() + 10_000, retry_count=1)

    assert ScheduledSet(config).bulk("enqueue").run().done == 3

    assert [json.loads(raw)["retry_count"] for raw in redis.lrange("queue:default", 0, -1)] == [1, 1, 1]


@pytest.mark.parametrize("act", ["retry", "enqueue", "kill", "delete"])
def test_only_what_is_meant_is_acted_on(act: Any, redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    raws = fill("retry", 600)
    odd = {raw for raw in raws if raw in raws[1::2]}

    progress = RetrySet(config).bulk(act, where=lambda entry: entry.value in odd).run()

    assert (progress.done, progress.left) == (300, 300)
    assert redis.zrange("retry", 0, -1) == raws[::2]
    assert redis.llen("queue:default") == (300 if act in ("retry", "enqueue") else 0)
    assert redis.zcard("dead") == (300 if act == "kill" else 0)


def test_a_job_that_fails_again_and_comes_back_is_left(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", 600, retry_count=3, failed_at=1)
    far = payload("far", retry_count=3, failed_at=1)
    redis.zadd("retry", {far: time.time() + 1_000_000})
    running = RetrySet(config).bulk("retry")
    back = []

    def fail_again() -> None:
        for raw in redis.rpop("queue:default", 1000) or []:
            job = json.loads(raw)
            if job["jid"] == "far":
                continue
            back.append({**job, "retry_count": job["retry_count"] + 1, "retried_at": int(time.time() * 1000) + 1000})
            redis.zadd("retry", {json.dumps(back[-1]): time.time() + 60})

    while running.step():
        fail_again()
    fail_again()

    assert running.progress.done == 601
    assert redis.zcard("retry") == len(back) == 600


def test_what_dies_meanwhile_is_left(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("dead", 300)
    running = DeadSet(config).bulk("retry")
    assert running.step()

    DeadSet(config).kill(payload("late"), notify_failure=False, trim=False)
    while running.step():
        pass

    assert running.progress.done == 300
    assert jids(redis.zrange("dead", 0, -1)) == ["late"]


def test_what_comes_in_later_behind_the_last_one_is_left(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", 300)
    running = RetrySet(config).bulk("delete")
    assert running.step()

    redis.zadd("retry", {b"tells no time": 2000})
    while running.step():
        pass

    assert redis.zrange("retry", 0, -1) == [b"tells no time"]


def test_it_ends_also_when_others_never_stop_adding(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", 300)
    redis.zadd("retry", {b"last": 1_000_000})
    running = RetrySet(config).bulk("delete")
    slices = 0

    while running.step():
        slices += 1
        redis.zadd("retry", {f"{slices} {number}": 2000 + slices for number in range(300)})
        assert slices < 10

    assert redis.zcard("retry") > 0


def test_what_others_take_meanwhile_is_neither_done_nor_in_the_way(
    redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    raws = fill("retry", 1000)
    running = RetrySet(config).bulk("retry", where=lambda entry: not entry.jid.endswith("0"))
    running.step()

    redis.zrem("retry", *raws[240:260], *raws[::10])
    while running.step():
        pass

    expected = {jid for number, jid in enumerate(jids(raws)) if number % 10 and not 250 <= number < 260}
    queued = jids(redis.lrange("queue:default", 0, -1))
    assert len(queued) == len(set(queued))
    assert set(queued) == expected


def test_an_entry_that_goes_between_the_look_and_the_act_is_told_as_gone(
    redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    for act in ("retry", "kill", "delete"):
        raws = fill("retry", 10)

        def take(entry: Any, raws: list[bytes] = raws) -> bool:
            redis.zrem("retry", raws[4])
            return True

        progress = Bulk("retry", act, config, where=take).run()  # type: ignore[arg-type]

        assert (progress.done, progress.gone) == (9, 1)
    assert (redis.llen("queue:default"), redis.zcard("dead")) == (9, 9)


def test_bad_entries_are_named_and_the_others_go_on(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {b"{": 1, payload("a"): 2, payload("b", queue="x|y"): 3, payload("c", queue="text"): 4})
    redis.set("queue:text", "")

    progress = RetrySet(config).retry_all()

    assert (progress.done, progress.failed, progress.state) == (1, 3, "done")
    reasons = dict(progress.failures)
    assert list(reasons) == ["1.0|", "3.0|b", "4.0|c"]
    assert "no job" in reasons["1.0|"]
    assert "queue name" in reasons["3.0|b"]
    assert "no list" in reasons["4.0|c"]
    assert redis.zcard("retry") == 3


def test_a_broken_middleware_spoils_only_its_job(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    class Broken:
        def call(self, _job: object, item: dict[str, Any], _queue: str, _redis: object, call_next: Any) -> Any:
            return call_next() if item["jid"] != "jid000001" else 1 / 0

    config.client_middleware.add(Broken)
    fill("retry", 3)

    progress = RetrySet(config).retry_all()

    assert (progress.done, progress.failed) == (2, 1)
    assert "ZeroDivisionError" in progress.failures[0][1]


def test_the_reasons_that_are_kept_are_bounded(redis: redis_py.Redis, config: Config) -> None:
    redis.zadd("retry", {f"garbage {number}": number for number in range(300)})

    progress = RetrySet(config).retry_all()

    assert (progress.failed, len(progress.failures)) == (300, bulk.MAX_FAILURES)


def test_killing_all_tells_the_handlers_only_when_it_shall(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    told: list[tuple[str, BaseException]] = []
    config.death_handlers.append(lambda job, error: told.append((job["jid"], error)))
    error = KeyError("mine")

    fill("retry", 3)
    RetrySet(config).kill_all()
    assert told == []

    fill("schedule", 2)
    ScheduledSet(config).kill_all(notify_failure=True, ex=error)
    assert told == [("jid000000", error), ("jid000001", error)]


def test_it_runs_in_a_thread_and_is_cancelled_between_slices(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("retry", 2000)
    running = RetrySet(config).bulk("delete")

    def cancel_late(entry: Any) -> bool:
        if running.progress.done >= 500:
            running.cancel()
        return True

    running.where = cancel_late
    running.start()

    assert running.wait(30)
    assert running.progress.state == "cancelled"
    assert running.progress.done == 750
    assert redis.zcard("retry") == 1250


def test_an_error_in_the_thread_is_kept_and_reported(config: Config, fill: Fill) -> None:
    reported: list[BaseException] = []
    config.error_handlers[:] = [lambda error, _context: reported.append(error)]
    fill("retry", 1)

    running = RetrySet(config).bulk("delete", where=lambda _entry: bool(1 / 0)).start()

    assert running.wait(30)
    assert running.progress.state == "broken"
    assert isinstance(running.error, ZeroDivisionError)
    assert reported == [running.error]


@pytest.mark.parametrize("act", ["retry", "kill", "delete"])
def test_it_is_resumed_from_what_was_saved_also_when_that_is_old(
    act: Any, redis: redis_py.Redis, config: Config, fill: Fill
) -> None:
    raws = fill("retry", 1000)
    interrupted = RetrySet(config).bulk(act)
    interrupted.step()
    saved = json.dumps(interrupted.saved())
    interrupted.step()  # and then the process dies

    resumed = Bulk.resume(json.loads(saved), config)
    assert (resumed.progress.total, resumed.progress.done) == (1000, 250)
    resumed.run()

    assert resumed.progress.state == "done"
    assert redis.zcard("retry") == 0
    if act == "retry":
        assert sorted(jids(redis.lrange("queue:default", 0, -1))) == jids(raws)


def test_a_resumed_one_knows_when_it_began(redis: redis_py.Redis, config: Config, fill: Fill) -> None:
    fill("dead", 300)
    first = DeadSet(config).bulk("delete")
    first.step()
    saved = first.saved()
    DeadSet(config).kill(payload("late"), notify_failure=False)

    Bulk.resume(saved, config).run()

    assert jids(redis.zrange("dead", 0, -1)) == ["late"]


def test_after_a_lost_answer_it_goes_on_and_nothing_is_done_twice(
    redis: redis_py.Redis, proxy: Proxy, fill: Fill
) -> None:
    config = Config(redis=RedisOptions(proxy.url))
    raws = fill("retry", 600)
    redis.script_load(sorted_sets._to_queue.source)
    proxy.on(script(sorted_sets._to_queue.sha.decode()), LoseReply(), times=1)
    running = RetrySet(config).bulk("retry")

    with pytest.raises(RedisUnavailable):
        running.run()
    assert running.progress.state == "broken"
    running.run()

    assert running.progress.state == "done"
    assert sorted(jids(redis.lrange("queue:default", 0, -1))) == jids(raws)
    config.reset_redis_pools()


def test_an_unknown_act_is_refused(config: Config) -> None:
    with pytest.raises(ValueError, match="is no act"):
        Bulk("retry", "burn", config)  # type: ignore[arg-type]


def test_an_empty_set_is_done_at_once(config: Config) -> None:
    assert JobSet("retry", config).retry_all() == Progress("done")
