"""Public fault reports about other queues, replayed (docs/spec/reports.md)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import redis as redis_py

from tests.crash.harness import Stage
from tests.crash.test_time_and_processes import clock, moody, needs_faketime  # noqa: F401  (fixtures)
from tests.support.faults import Delay, script
from tests.support.processes import eventually
from tests.support.proxy import Proxy
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.storage import sorted_sets
from wurk_django.worker.scheduler import Scheduler

pytestmark = pytest.mark.crash

HOUR_S = 3600


@needs_faketime
@pytest.mark.oracle("reports:P01")
def test_a_job_for_in_five_hours_runs_once_after_five_hours_and_is_in_no_worker_before(
    moody: Stage,  # noqa: F811
    clock: Path,  # noqa: F811
) -> None:
    workers = [moody.worker(concurrency=1) for _ in range(4)]
    for worker in workers:
        worker.wait_until_ready(moody.redis)
    jid = moody.push("Work", at=time.time() + 5 * HOUR_S)

    for minutes in range(10, 370, 10):
        clock.write_text(f"+{minutes}m")
        time.sleep(0.1)  # some looks of each scheduler
        if minutes < 300:
            assert moody.where(jid) == ["schedule"], f"after {minutes} minutes"
            assert not moody.ledger.jids("start")
        if minutes % 60 == 0:
            workers[0].kill()
            workers = [*workers[1:], moody.worker(concurrency=1)]
    moody.wait_until_done([jid])

    assert moody.ledger.times(jid) == {"start": 1, "end": 1}


@pytest.mark.oracle("reports:P04")
def test_of_twenty_jobs_on_five_workers_all_are_done_after_two_were_killed(stage: Stage) -> None:
    workers = [stage.worker(concurrency=4) for _ in range(5)]
    for worker in workers:
        worker.wait_until_ready(stage.redis)
    jids = stage.push_many("Work", [[1500]] * 20)
    eventually(lambda: stage.ledger.jids("start") == set(jids), 20)
    interrupted = {jid for worker in workers[:2] for jid in _held_by(stage, worker.pid)}

    for worker in workers[:2]:
        worker.kill()
    stage.wait_until_done(jids)

    assert interrupted
    starts = {jid: stage.ledger.times(jid)["start"] for jid in jids}
    assert {jid for jid, count in starts.items() if count == 2} == interrupted
    assert set(starts.values()) <= {1, 2}, "a slow one is not taken for a dead one"
    assert any("are back on the queue" in worker.output for worker in workers[2:]), "and it is told"
    assert not stage.redis.zcard("dead")


def _held_by(stage: Stage, pid: int) -> set[str]:
    return {entry.jid for entry in stage.ledger.entries("start", pid=pid)}


@pytest.mark.oracle("reports:P20")
def test_ten_schedulers_on_a_slow_redis_move_each_due_job_once_in_bounded_steps(
    redis: redis_py.Redis, proxy: Proxy
) -> None:
    count = 20_000
    members = {b'{"class":"A","args":[],"queue":"q","jid":"%024x"}' % number: 1 for number in range(count)}
    redis.zadd("schedule", members)
    proxy.on(script(sorted_sets._promote.sha.decode()), Delay(reply_s=0.02), times=None)
    configs = [Config(Options(), RedisOptions(proxy.url)) for _ in range(10)]
    pollers = [threading.Thread(target=Scheduler(config).enqueue_due) for config in configs]

    for poller in pollers:
        poller.start()
    for poller in pollers:
        poller.join(60)

    moved = redis.lrange("queue:q", 0, -1)
    assert len(moved) == count
    assert len(set(moved)) == count
    assert redis.zcard("schedule") == 0
    assert proxy.count("EVALSHA") >= count / sorted_sets.PROMOTE_BATCH, "no call moves more than its share"
    for config in configs:
        config.reset_redis_pools()
