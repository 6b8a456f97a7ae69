"""The reaper's passes: a dead child's, the watch, the hourly one over everything, and when none may drain."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.faults import LoseRequest, script
from tests.support.proxy import Proxy
from tests.worker.orphans import FOREIGN, left_behind, reaper_behind
from tests.worker.rig import Recorder, Rig, wait_for
from wurk_django import keys
from wurk_django.errors import RedisUnavailable
from wurk_django.storage import orphans
from wurk_django.worker import identity
from wurk_django.worker.reaper import Reaper, reclaim_child

draining = script(orphans._drain.sha.decode())


@pytest.fixture
def dead_pid() -> Iterator[int]:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        yield process.pid


def a_reaper(rig: Rig, **options: float) -> Reaper:
    config = rig.config(["q"], **{"reaper_grace": 0, **options})
    config.freeze()
    return Reaper(config)


def beating(redis: redis_py.Redis, name: str, *queues: str, capsules: int = 1) -> None:
    """A process that tells which queues it serves."""
    told = {f"c{index}": {"concurrency": 1, "weights": dict.fromkeys(queues, 0)} for index in range(capsules)}
    redis.sadd("processes", name)
    redis.hset(name, "info", json.dumps({"queues": list(queues), "capsules": told}))


def watch(redis: redis_py.Redis, reaper: Reaper) -> int:
    redis.delete(keys.REAPER_WATCH)
    return reaper._watch()


# --- a dead child -----------------------------------------------------------------------------------------------------


def test_an_outage_is_raised_so_that_the_parent_asks_again(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, dead_pid: int, one_attempt: None
) -> None:
    config = rig.config(["q"], url=proxy.url)
    left_behind(redis, keys.private_list("q", identity.host(), dead_pid, identity.NONCE))
    proxy.on(draining, LoseRequest())

    with pytest.raises(RedisUnavailable):
        reclaim_child(config, config.redis, dead_pid)

    assert reclaim_child(config, config.redis, dead_pid) == 3


def test_a_queue_of_a_wrong_type_does_not_hold_up_the_other_queues_of_a_dead_child(
    redis: redis_py.Redis, rig: Rig, dead_pid: int
) -> None:
    config = rig.config(["q", "r"])
    for queue in ("q", "r"):
        left_behind(redis, keys.private_list(queue, identity.host(), dead_pid, identity.NONCE))
    redis.set("queue:q", "text")

    assert reclaim_child(config, config.redis, dead_pid) == 3

    assert redis.llen("queue:r") == 3
    assert "WRONGTYPE" in rig.messages()[0]


# --- the watch --------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:C11")
def test_one_process_of_the_fleet_watches_in_an_interval(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    reapers = [reaper_behind(rig, proxy) for _ in range(5)]

    for reaper in reapers:
        reaper._watch()

    assert proxy.count("SMEMBERS") == 2, "what one look reads"
    assert 0 < redis.pttl(keys.REAPER_WATCH) <= 5000


@pytest.mark.oracle("safety:C11")
def test_of_many_processes_that_start_together_one_or_two_sweep(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    starts = [threading.Thread(target=reaper_behind(rig, proxy)._boot_sweep) for _ in range(10)]
    for start in starts:
        start.start()
    for start in starts:
        start.join(10)

    assert 1 <= proxy.count("SCAN") <= 3


def test_a_process_that_starts_within_the_second_of_another_sweeps_after_it(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    reaper_behind(rig, proxy)._boot_sweep()
    left_behind(redis, FOREIGN)

    reaper_behind(rig, proxy)._boot_sweep()

    assert redis.llen("queue:q") == 3


def test_a_worker_watches_while_it_runs(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job()
    gone = "elsewhere:4711:ab12cd34ef56"
    beating(redis, gone, "q")
    launcher = rig.launcher(rig.config(["q"], reaper_grace=0, reaper_watch_interval=0.05))
    wait_for(lambda: gone in launcher.reaper._known)
    left_behind(redis, FOREIGN)

    redis.delete(gone)

    wait_for(lambda: len(jobs.calls) == 3)


# --- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:R24")
def test_a_search_asks_for_a_thousand_keys_at_a_time_and_rests_between(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    for start in range(0, 20_000, 5000):
        redis.mset({f"foreign:{number}": 1 for number in range(start, start + 5000)})
    left_behind(redis, FOREIGN)
    config = rig.config([f"q{number}" for number in range(20)] + ["q"], url=proxy.url)
    config.freeze()
    reaper = Reaper(config)
    rests: list[float] = []
    reaper._loop.sleep = rests.append  # type: ignore[method-assign]

    assert reaper.sweep() == 3

    assert proxy.count("SCAN") <= 30, "whatever the number of queues"
    assert len(rests) >= proxy.count("SCAN") - 1
    assert all(0 < rest <= 0.02 for rest in rests)


@pytest.mark.oracle("reliability:R17")
def test_a_stop_ends_a_search_that_finds_nothing(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    redis.mset({f"foreign:{number}": 1 for number in range(5000)})
    reaper = reaper_behind(rig, proxy)
    reaper._loop._done.set()

    reaper.sweep_all()

    assert proxy.count("SCAN") == 1


# --- how much at a time -----------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:L16")
def test_a_long_list_is_drained_in_slices_of_two_calls_each(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    left_behind(redis, FOREIGN, count=10_000)

    assert reaper_behind(rig, proxy).sweep() == 10_000

    assert proxy.count("LRANGE") == 101
    assert proxy.count("EVALSHA") == 100
    assert redis.llen("queue:q") == 10_000
