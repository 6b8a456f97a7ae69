"""The passes of the reaper beside its sweep over the served queues: child, watch, all; and when it holds back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
import redis as redis_py

from tests.support.faults import Answer, named
from tests.support.proxy import Proxy
from tests.worker.orphans import FOREIGN, alive, left_behind, reaper_behind
from tests.worker.rig import Rig, queued, wait_for
from wurk_django import keys
from wurk_django.worker import identity, verdict
from wurk_django.worker.reaper import Reaper, reclaim_child

ELSEWHERE = "elsewhere:4711:ab12cd34ef56"


def beating(redis: redis_py.Redis, name: str, *queues: str, capsules: int = 1) -> None:
    """A process with a heartbeat that tells what it serves."""
    weights = dict.fromkeys(queues, 0)
    info = {"capsules": {f"c{number}": {"weights": weights} for number in range(capsules)}, "queues": list(queues)}
    redis.sadd("processes", name)
    redis.hset(name, "info", json.dumps(info))


def silence(redis: redis_py.Redis, *names: str) -> None:
    """Their heartbeats have lapsed."""
    redis.delete(*names)


def watch(reaper: Reaper, redis: redis_py.Redis) -> int:
    """The next look of a watching fleet."""
    redis.delete("super_fetch:reaper:watch")
    return reaper._watch()


# --- watch ------------------------------------------------------------------------------------------------------------


def test_a_process_whose_heartbeat_lapses_is_noticed_without_a_search(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    reaper = reaper_behind(rig, proxy)
    beating(redis, ELSEWHERE, "q", "retired", capsules=2)
    beating(redis, identity.identity(), "q")
    assert watch(reaper, redis) == 0
    lists = [f"queue:{queue}|elsewhere|4711|ab12cd34ef56|{index}" for queue in ("q", "retired") for index in (0, 1)]
    for key in lists:
        left_behind(redis, key, count=2)

    silence(redis, ELSEWHERE)

    assert watch(reaper, redis) == 8
    assert redis.llen("queue:retired") == 4, "it need not be a queue of ours"
    assert proxy.count("SCAN") == 0


def test_a_list_that_was_touched_lately_is_looked_at_again(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    reaper = reaper_behind(rig, proxy)
    beating(redis, ELSEWHERE, "q")
    beating(redis, identity.identity(), "q")
    watch(reaper, redis)
    left_behind(redis, FOREIGN, idle_s=5)
    silence(redis, ELSEWHERE)
    assert watch(reaper, redis) == 0

    redis.restore(FOREIGN, 0, redis.dump(FOREIGN), replace=True, idletime=31)

    assert watch(reaper, redis) == 3


def test_a_process_that_beats_again_keeps_its_jobs(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    reaper = reaper_behind(rig, proxy)
    beating(redis, ELSEWHERE, "q")
    beating(redis, identity.identity(), "q")
    watch(reaper, redis)
    left_behind(redis, FOREIGN, idle_s=5)
    silence(redis, ELSEWHERE)
    watch(reaper, redis)

    beating(redis, ELSEWHERE, "q")
    redis.restore(FOREIGN, 0, redis.dump(FOREIGN), replace=True, idletime=60)

    assert watch(reaper, redis) == 0
    assert redis.llen(FOREIGN) == 3


def test_of_two_processes_one_looks_in_an_interval(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    first, second = reaper_behind(rig, proxy), reaper_behind(rig, proxy)
    first._watch()
    seen = proxy.count("SMEMBERS")

    second._watch()

    assert proxy.count("SMEMBERS") == seen
    assert 0 < redis.pttl("super_fetch:reaper:watch") <= 5_000


@pytest.mark.oracle("safety:S-63")
@pytest.mark.parametrize(
    "info", ["no json", "[]", "{}", '{"capsules": 5, "queues": 5}', '{"queues": [5, null]}', '{"capsules": {"a": []}}']
)
@pytest.mark.parametrize("name", [ELSEWHERE, "x", "a:b", "::", "h:x:n", "queue:q"])
def test_a_hostile_heartbeat_stops_no_look(name: str, info: str, redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"])
    config.freeze()
    reaper = Reaper(config)
    redis.sadd("processes", name)
    redis.hset(name, "info", info)
    watch(reaper, redis)

    silence(redis, name)

    assert watch(reaper, redis) == 0
    assert rig.messages() == []


# --- all queues -------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:R11")
def test_a_queue_that_nobody_serves_is_drained_by_the_sweep_over_all(redis: redis_py.Redis, reaper: Reaper) -> None:
    jobs = left_behind(redis, "queue:retired|elsewhere|4711|ab12cd34ef56|0")
    assert reaper.sweep() == 0

    assert reaper.sweep_all() == 3

    assert queued(redis, "retired") == jobs


def test_it_runs_once_an_hour_in_the_whole_fleet(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    left_behind(redis, "queue:retired|elsewhere|4711|ab12cd34ef56|0")
    assert reaper_behind(rig, proxy)._tick() == 3
    left_behind(redis, "queue:retired|elsewhere|4711|ab12cd34ef56|0")
    redis.delete(*[key for key in redis.keys("super_fetch:reaper:*") if key != b"super_fetch:reaper:full"])

    assert reaper_behind(rig, proxy)._tick() == 0
    assert 3_500 < redis.ttl("super_fetch:reaper:full") <= 3_600


@pytest.mark.oracle("reliability:R12")
def test_a_key_that_nobody_can_read_is_told_once_and_left(
    redis: redis_py.Redis, reaper: Reaper, caplog: pytest.LogCaptureFixture
) -> None:
    redis.rpush("queue:x|foo", "job", "job")

    for _ in range(3):
        reaper.sweep_all()

    [line] = [record.getMessage() for record in caplog.records if "foo" in record.getMessage()]
    assert "'queue:x|foo'" in line
    assert "2 jobs" in line
    assert redis.llen("queue:x|foo") == 2


def test_a_public_queue_with_a_pipe_in_its_name_is_no_riddle(
    redis: redis_py.Redis, reaper: Reaper, caplog: pytest.LogCaptureFixture
) -> None:
    redis.sadd("queues", "x|foo")
    redis.rpush("queue:x|foo", "job")

    reaper.sweep_all()

    assert caplog.records == []


def test_failing_to_tell_of_a_riddle_stops_no_sweep(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    redis.rpush("queue:x|foo", "job")
    left_behind(redis, FOREIGN)
    proxy.on(named("SISMEMBER"), Answer("LOADING soon"), times=None)
    proxy.on(named("LLEN"), Answer("LOADING soon"), times=None)

    assert reaper_behind(rig, proxy).sweep_all() == 3


@pytest.mark.oracle("safety:R24")
def test_a_sweep_over_a_large_keyspace_is_many_small_looks_with_rests_between(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.pipeline(transaction=False) as pipe:
        for number in range(20_000):
            pipe.set(f"foreign:{number}", 1)
        pipe.execute()
    left_behind(redis, FOREIGN)
    config = rig.config(["q"])
    config.freeze()
    reaper = Reaper(config)
    rests: list[float] = []
    monkeypatch.setattr(reaper._loop, "sleep", rests.append)

    assert reaper.sweep_all() == 3

    assert 15 <= len(rests) <= 25, "a look at a thousand keys each"
    assert all(rest > 0 for rest in rests)


# --- child ------------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:R20")
def test_the_parent_brings_the_jobs_of_a_dead_child_back_at_once(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    pid = 4_194_200
    config = rig.config(["q"], url=proxy.url)
    config.capsule("slow", ["q", "low"], 1)
    config.freeze()
    for queue, index in (("q", 0), ("q", 1), ("low", 1)):
        left_behind(redis, keys.private_list(queue, identity.host(), pid, identity.NONCE, index), idle_s=0)
    alive(redis, f"{identity.host()}:{pid}:{identity.NONCE}")
    sibling = keys.private_list("q", identity.host(), pid + 1, identity.NONCE, 0)
    left_behind(redis, sibling, idle_s=0)

    assert reclaim_child(config, config.redis, pid) == 9

    assert redis.llen("queue:q") == 6
    assert redis.llen("queue:low") == 3
    assert redis.llen(sibling) == 3
    assert proxy.count("SCAN") == 0


def test_the_parent_leaves_poison_to_a_sweep(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"])
    config.freeze()
    pid = subprocess.Popen([sys.executable, "-c", ""])
    pid.wait()
    key = keys.private_list("q", identity.host(), pid.pid, identity.NONCE, 0)
    poison, good = (json.dumps({"class": "A", "jid": jid * 24, "args": []}).encode() for jid in "ab")
    redis.lpush(key, good, poison)
    redis.set("super_fetch:recovered:" + "a" * 24, 3)

    assert reclaim_child(config, config.redis, pid.pid) == 1
    assert redis.lrange(key, 0, -1) == [poison]

    Reaper(config).sweep()
    assert redis.zrange("dead", 0, -1) == [poison]


# --- holding back -----------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:R19", "safety:C5")
def test_when_most_of_the_fleet_vanishes_at_once_everything_stays_for_one_more_time_to_live(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(verdict, "monotonic", lambda: clock[0])
    config = rig.config(["q"], heartbeat_ttl=60, reaper_grace=0)
    config.freeze()
    reaper = Reaper(config)
    fleet = [f"elsewhere:{number}:ab12cd34ef56" for number in range(10)]
    for name in fleet:
        alive(redis, name)
        left_behind(redis, f"queue:q|elsewhere|{name.split(':')[1]}|ab12cd34ef56|0", count=1)
    assert reaper.sweep() == 0

    silence(redis, *fleet[:8])
    assert reaper.sweep() == 0
    clock[0] += 59
    assert reaper.sweep() == 0
    assert "8 of 10 processes vanished" in caplog.text

    clock[0] += 2
    assert reaper.sweep() == 8, "they are dead indeed"
    assert redis.llen("queue:q") == 8


def test_when_a_minority_vanishes_its_jobs_come_back_at_once(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"], reaper_grace=0)
    config.freeze()
    reaper = Reaper(config)
    fleet = [f"elsewhere:{number}:ab12cd34ef56" for number in range(4)]
    for name in fleet:
        alive(redis, name)
    left_behind(redis, "queue:q|elsewhere|0|ab12cd34ef56|0", count=5)
    reaper.sweep()

    silence(redis, *fleet[:2])

    assert reaper.sweep() == 5


def test_processes_that_ended_in_order_are_no_sign_of_a_strange_clock(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"], reaper_grace=0)
    config.freeze()
    reaper = Reaper(config)
    fleet = [f"elsewhere:{number}:ab12cd34ef56" for number in range(10)]
    for name in fleet:
        alive(redis, name)
    left_behind(redis, "queue:q|elsewhere|0|ab12cd34ef56|0", count=5)
    reaper.sweep()

    silence(redis, *fleet[:8])
    redis.srem("processes", *fleet[1:8])

    assert reaper.sweep() == 5


# --- size -------------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("safety:L16")
def test_a_large_list_comes_back_in_short_calls_and_the_first_job_at_once(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    count = int(os.environ.get("WURK_ORPHANS", "20000"))
    left_behind(redis, FOREIGN, count=count)
    reaper = reaper_behind(rig, proxy)
    sweep = threading.Thread(target=reaper.sweep)
    sweep.start()
    wait_for(lambda: redis.llen("queue:q") >= 100)
    early = redis.llen("queue:q")
    sweep.join(120)

    assert early < count, "there are jobs on the queue while the drain goes on"
    assert redis.llen("queue:q") == count
    assert not redis.exists(FOREIGN)
    assert proxy.count("LRANGE") == count // 100 + 1, "a hundred a call: none of them takes long"
