"""The reaper's work: how the jobs of the dead come back, and when it looks for them."""

from __future__ import annotations

import threading
import time

import pytest
import redis as redis_py

from tests.support.faults import Answer, Delay, LoseReply, named, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from tests.worker.orphans import FOREIGN, left_behind, reaper_behind
from tests.worker.rig import Recorder, Rig, enqueue, numbered, queued, stays, threads, wait_for
from wurk_django.storage import orphans
from wurk_django.worker.reaper import Reaper

draining = script(orphans._drain.sha.decode())


@pytest.mark.oracle("reliability:R18")
def test_recovered_jobs_stand_before_the_waiting_ones_the_oldest_next(redis: redis_py.Redis, reaper: Reaper) -> None:
    waiting = numbered(1)
    enqueue(redis, "q", *waiting)
    jobs = left_behind(redis, FOREIGN, count=250)

    assert reaper.sweep() == 250

    assert queued(redis, "q") == [*jobs, *waiting]


@pytest.mark.oracle("reliability:R16")
def test_a_drain_that_fails_midway_leaves_every_job_in_one_place_and_is_told(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    jobs = left_behind(redis, FOREIGN, count=250)
    proxy.on(draining, Answer("MISCONF no"), skip=1)
    reaper = reaper_behind(rig, proxy, reaper_grace=0)

    assert reaper.sweep() == 100

    assert queued(redis, "q") == jobs[150:]
    assert redis.lrange(FOREIGN, 0, -1) == jobs[:150][::-1]
    assert "bringing back the jobs of elsewhere:4711" in rig.messages()[0]
    assert reaper.sweep() == 150
    assert queued(redis, "q") == jobs, "in their old order"


def test_a_drain_whose_answer_was_lost_moves_no_job_twice(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    jobs = left_behind(redis, FOREIGN, count=5)
    lost = proxy.on(draining, LoseReply())

    reaper_behind(rig, proxy).sweep()

    assert lost.hits == 1
    assert queued(redis, "q") == jobs
    assert not redis.exists(FOREIGN)


def test_two_reapers_at_once_move_each_job_once(redis: redis_py.Redis, rig: Rig) -> None:
    jobs = left_behind(redis, FOREIGN, count=900)
    moved: list[int] = []
    configs = [rig.config(["q"], reaper_grace=0) for _ in range(2)]
    for config in configs:
        config.freeze()
    sweeps = [threading.Thread(target=lambda config=config: moved.append(Reaper(config).sweep())) for config in configs]

    for sweep in sweeps:
        sweep.start()
    for sweep in sweeps:
        sweep.join()

    assert sum(moved) == 900
    assert sorted(queued(redis, "q")) == sorted(jobs)


def test_a_public_queue_of_a_wrong_type_keeps_the_jobs_where_they_are(
    redis: redis_py.Redis, reaper: Reaper, rig: Rig
) -> None:
    left_behind(redis, FOREIGN)
    redis.set("queue:q", "text")

    assert reaper.sweep() == 0

    assert redis.llen(FOREIGN) == 3
    assert "WRONGTYPE" in rig.messages()[0]


@pytest.mark.oracle("safety:R11")
def test_orphans_come_back_while_redis_is_full(full_server: redis_py.Redis, own_server: RedisServer, rig: Rig) -> None:
    left_behind(full_server, FOREIGN)
    full_server.config_set("maxmemory", 1)
    config = rig.config(["q"], url=own_server.url)
    config.freeze()

    assert Reaper(config).sweep() == 3


@pytest.mark.oracle("safety:S-63")
@pytest.mark.parametrize("queue", ["q*", "q?", "q[ab]", "q\\", "q^-]"])
def test_glob_characters_in_a_queue_name_mean_themselves(queue: str, redis: redis_py.Redis, rig: Rig) -> None:
    mine = f"queue:{queue}|elsewhere|4711|ab12cd34ef56|0"
    others = f"queue:{queue.replace('*', 'x').replace('?', 'x')}z|elsewhere|4711|ab12cd34ef56|0"
    left_behind(redis, mine)
    left_behind(redis, others)
    config = rig.config([[queue, 0]])
    config.freeze()

    assert Reaper(config).sweep() == 3
    assert redis.llen(others) == 3


def test_queues_of_others_are_left_to_others(redis: redis_py.Redis, reaper: Reaper) -> None:
    key = "queue:retired|elsewhere|4711|ab12cd34ef56|0"
    left_behind(redis, key)

    assert reaper.sweep() == 0
    assert redis.llen(key) == 3


# --- when it sweeps ---------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:R13", "safety:C11")
def test_of_two_processes_with_the_same_queues_one_sweeps_in_an_interval(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    same = [rig.config(queues, url=proxy.url, reaper_interval=60) for queues in (["q", "r"], ["r", "q"])]
    other = rig.config(["q"], url=proxy.url, reaper_interval=60)
    left_behind(redis, FOREIGN)
    for config in (*same, other):
        config.freeze()

    assert [Reaper(config)._tick() for config in same] == [3, 0]
    scans = proxy.count("SCAN")
    left_behind(redis, FOREIGN)
    assert Reaper(other)._tick() == 3, "another set of queues has a lock of its own"

    assert scans > 0
    locks = [key for key in redis.keys("super_fetch:reaper:*") if key != b"super_fetch:reaper:full"]
    assert [redis.pttl(key) for key in locks] == pytest.approx([60_000] * 2, abs=5_000)


def test_a_worker_sweeps_at_its_start_and_then_at_every_interval(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    left_behind(redis, FOREIGN)
    rig.launcher(rig.config(["q"], reaper_interval=0.2))
    wait_for(lambda: len(jobs.calls) == 3)

    left_behind(redis, FOREIGN)
    wait_for(lambda: len(jobs.calls) == 6)


@pytest.mark.oracle("reliability:R17")
def test_a_stop_during_a_long_sweep_returns_in_time_and_a_later_start_makes_no_second_loop(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper = reaper_behind(rig, proxy, reaper_interval=0.05)
    monkeypatch.setattr(reaper, "_boot_sweep", lambda: None)
    slow = proxy.on(named("SCAN"), Delay(reply_s=0.8))
    reaper.start()
    wait_for(lambda: slow.hits)

    started = time.monotonic()
    reaper._loop.stop(timeout_s=0.1)
    assert time.monotonic() - started < 0.5
    reaper.start()

    assert threads().count("wurk-reaper") == 1
    wait_for(lambda: "wurk-reaper" not in threads())
    reaper.stop()


def test_a_sweep_that_fails_is_told_and_the_next_one_comes(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    left_behind(redis, FOREIGN)
    proxy.on(named("SMEMBERS"), Answer("LOADING soon"), times=2)
    reaper = reaper_behind(rig, proxy, reaper_interval=0.1)
    reaper.start()

    wait_for(lambda: redis.llen("queue:q") == 3)
    reaper.stop()

    assert any(message.startswith("reaper: LOADING") for message in rig.messages())
    assert stays(lambda: redis.llen("queue:q") == 3, 0.1)
