"""The reaper's verdict: whose private list it is, and whether its owner is dead."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import Answer, Before, named, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from tests.worker.orphans import FOREIGN, alive, left_behind, reaper_behind
from tests.worker.rig import Rig, enqueue, numbered, queued, take
from wurk_django import keys
from wurk_django.storage import orphans
from wurk_django.worker import identity
from wurk_django.worker.owners import Owner, read_any_owner, read_owner
from wurk_django.worker.reaper import Reaper

draining = script(orphans._drain.sha.decode())


@pytest.fixture
def sibling() -> Iterator[subprocess.Popen[bytes]]:
    """A living process beside ours."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


# --- reading the owner out of a key -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("queue:mail|web-1|4711|ab12cd34ef56|0", Owner("mail", "web-1", 4711, "ab12cd34ef56")),
        ("queue:mail|web-1|4711|0", Owner("mail", "web-1", 4711, "")),
        ("queue:q|123456789012|4711|0", Owner("q", "123456789012", 4711, "")),
        ("queue:a|b|web-1|4711|ab12cd34ef56|0", Owner("a|b", "web-1", 4711, "ab12cd34ef56")),
        ("queue:q|web-1|4711|123456789012|0", Owner("q", "web-1", 4711, "123456789012")),
        ("queue:q|web-1|x|0", None),
        ("queue:q|1", None),
        ("queue:|h|1|n|0", None),
        ("queue:a|b|123|45|0", Owner("a", "b", 123, "45")),
        ("queue:q|h|１|n|0", None),
        ("other:q|h|1|n|0", None),
        ("queue:q", None),
    ],
)
def test_an_owner_is_read_from_the_right_end_of_a_key(key: str, owner: Owner | None) -> None:
    assert read_any_owner(key) == owner


def test_a_key_of_a_known_queue_has_exactly_so_many_segments() -> None:
    assert read_owner("queue:q|h|1|n|0", "q") == Owner("q", "h", 1, "n")
    assert read_owner("queue:q|h|1|0", "q") == Owner("q", "h", 1, "")
    assert read_owner("queue:q|x|h|1|n|0", "q") is None, "a list of the queue q|x"
    assert read_owner("queue:qq|h|1|n|0", "q") is None


SEGMENTS = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(SEGMENTS, SEGMENTS, st.integers(0, 2**22), st.integers(0, 2**48 - 1), st.integers(0, 99))
def test_the_owner_of_every_list_that_we_write_is_read_back(
    queue: str, host: str, pid: int, nonce: int, index: int
) -> None:
    key = keys.private_list(queue, host, pid, f"{nonce:012x}", index)

    assert read_owner(key, queue) == read_any_owner(key) == Owner(queue, host, pid, f"{nonce:012x}")


# --- who is dead ------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:R1")
def test_a_dead_sibling_is_reaped_at_once_although_its_heartbeat_still_lives(
    redis: redis_py.Redis, reaper: Reaper, sibling: subprocess.Popen[bytes]
) -> None:
    key = keys.private_list("q", identity.host(), sibling.pid, identity.NONCE)
    jobs = left_behind(redis, key, idle_s=0)
    alive(redis, f"{identity.host()}:{sibling.pid}:{identity.NONCE}")
    assert reaper.sweep() == 0, "it lives"

    sibling.kill()
    assert reaper.sweep() == 0, "a zombie still counts as alive"
    sibling.wait()

    assert reaper.sweep() == 3
    assert queued(redis, "q") == jobs
    assert not redis.exists(key)


@pytest.mark.oracle("reliability:R2")
def test_an_idle_list_of_a_foreign_process_without_a_heartbeat_is_drained(
    redis: redis_py.Redis, reaper: Reaper
) -> None:
    jobs = left_behind(redis, FOREIGN)

    assert reaper.sweep() == 3
    assert queued(redis, "q") == jobs


@pytest.mark.oracle("reliability:R3")
def test_membership_without_a_heartbeat_is_not_life(redis: redis_py.Redis, reaper: Reaper) -> None:
    redis.sadd("processes", "elsewhere:4711:ab12cd34ef56")
    left_behind(redis, FOREIGN)

    assert reaper.sweep() == 3


def test_a_process_with_a_heartbeat_keeps_its_jobs(redis: redis_py.Redis, reaper: Reaper) -> None:
    alive(redis, "elsewhere:4711:ab12cd34ef56")
    left_behind(redis, FOREIGN)

    assert reaper.sweep() == 0
    assert redis.llen(FOREIGN) == 3


@pytest.mark.oracle("reliability:R4", "safety:C2")
def test_a_list_that_was_touched_lately_is_left_for_a_later_sweep(redis: redis_py.Redis, reaper: Reaper) -> None:
    left_behind(redis, FOREIGN, idle_s=5)
    assert reaper.sweep() == 0

    left_behind(redis, FOREIGN, count=1, idle_s=31)
    assert reaper.sweep() == 4


def test_looking_at_a_list_does_not_make_it_look_alive(redis: redis_py.Redis, reaper: Reaper) -> None:
    left_behind(redis, FOREIGN, idle_s=20)

    reaper.sweep()

    assert redis.object("idletime", FOREIGN) >= 20


def test_a_grace_of_zero_drains_at_once(redis: redis_py.Redis, rig: Rig) -> None:
    left_behind(redis, FOREIGN, idle_s=0)
    config = rig.config(["q"], reaper_grace=0)
    config.freeze()

    assert Reaper(config).sweep() == 3


@pytest.mark.oracle("reliability:R5")
def test_an_owner_that_beats_between_the_snapshot_and_the_second_look_keeps_its_jobs(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    left_behind(redis, FOREIGN)
    seen = proxy.on(named("OBJECT"), Before(lambda: alive(redis, "elsewhere:4711:ab12cd34ef56")))

    assert reaper_behind(rig, proxy).sweep() == 0

    assert seen.hits == 1
    assert redis.llen(FOREIGN) == 3
    assert proxy.count("LRANGE") == 0, "left before anything was read"


@pytest.mark.oracle("reliability:R21", "safety:C2")
def test_an_owner_that_beats_between_the_second_look_and_the_drain_keeps_its_jobs(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    jobs = left_behind(redis, FOREIGN)
    seen = proxy.on(draining, Before(lambda: alive(redis, "elsewhere:4711:ab12cd34ef56")))

    assert reaper_behind(rig, proxy).sweep() == 0

    assert seen.hits == 1
    assert redis.lrange(FOREIGN, 0, -1) == jobs[::-1]
    assert queued(redis, "q") == []


@pytest.mark.oracle("reliability:R6", "safety:C9")
def test_a_reused_pid_does_not_keep_the_jobs_of_an_earlier_process(redis: redis_py.Redis, reaper: Reaper) -> None:
    key = keys.private_list("q", identity.host(), os.getpid(), "0123456789ab")
    left_behind(redis, key)
    alive(redis, identity.identity())

    assert reaper.sweep() == 3


@pytest.mark.oracle("reliability:R6", "safety:C9")
def test_a_pid_unknown_here_does_not_condemn_a_process_that_beats(
    redis: redis_py.Redis, reaper: Reaper, sibling: subprocess.Popen[bytes]
) -> None:
    sibling.kill()
    sibling.wait()
    key = keys.private_list("q", identity.host(), sibling.pid, "0123456789ab")
    left_behind(redis, key)
    alive(redis, f"{identity.host()}:{sibling.pid}:0123456789ab")

    assert reaper.sweep() == 0


@pytest.mark.oracle("reliability:R7")
def test_our_nonce_on_another_host_is_judged_by_its_heartbeat(redis: redis_py.Redis, reaper: Reaper) -> None:
    key = keys.private_list("q", "elsewhere", os.getpid(), identity.NONCE)
    left_behind(redis, key)
    alive(redis, f"elsewhere:{os.getpid()}:{identity.NONCE}")
    assert reaper.sweep() == 0

    redis.delete(f"elsewhere:{os.getpid()}:{identity.NONCE}")
    assert reaper.sweep() == 3


@pytest.mark.oracle("reliability:R8")
def test_an_old_key_without_a_nonce_belongs_to_whoever_has_its_host_and_pid(
    redis: redis_py.Redis, reaper: Reaper
) -> None:
    left_behind(redis, "queue:q|web:1|4711|0")
    alive(redis, "web:1:4711:ffffffffffff")
    assert reaper.sweep() == 0

    redis.delete("web:1:4711:ffffffffffff")
    assert reaper.sweep() == 3


def test_our_own_lists_are_never_touched(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"], reaper_grace=0)
    dispatcher = rig.dispatcher(config)
    config.freeze()
    enqueue(redis, "q", *numbered(2))
    take(dispatcher, 2)

    assert Reaper(config).sweep() == 0


@pytest.mark.oracle("reliability:R9")
def test_where_the_server_tells_no_idle_times_the_reaper_uses_its_own_clock(
    full_server: redis_py.Redis, own_server: RedisServer, rig: Rig, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    full_server.config_set("maxmemory-policy", "allkeys-lfu")
    full_server.lpush(FOREIGN, *numbered(3))
    config = rig.config(["q"], url=own_server.url, reaper_grace=30)
    config.freeze()
    reaper = Reaper(config)
    now = time.monotonic()
    clock = [now]
    monkeypatch.setattr("wurk_django.worker.verdict.monotonic", lambda: clock[0])

    assert reaper.sweep() == 0, "remembered"
    clock[0] = now + 29
    assert reaper.sweep() == 0
    clock[0] = now + 31
    assert reaper.sweep() == 3
    full_server.lpush(FOREIGN, *numbered(1))
    assert reaper.sweep() == 0, "remembered anew"

    assert sum("idle times" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.oracle("reliability:R10")
def test_a_full_memory_of_judged_lists_is_forgotten_and_only_delays(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wurk_django.worker.verdict.MAX_REMEMBERED", 3)
    clock = [time.monotonic()]
    monkeypatch.setattr("wurk_django.worker.verdict.monotonic", lambda: clock[0])
    proxy.on(named("OBJECT"), Answer("ERR an LFU policy is selected"), times=None)
    reaper = reaper_behind(rig, proxy)
    lists = [f"queue:q|elsewhere|{number}|ab12cd34ef56|0" for number in range(4)]
    for key in lists[:3]:
        redis.lpush(key, b"job")
    assert reaper.sweep() == 0

    redis.lpush(lists[3], b"job")
    clock[0] += 20
    assert reaper.sweep() == 0
    redis.delete(lists[3])
    clock[0] += 11
    assert reaper.sweep() == 0, "no clock has run for the whole grace"
    for _ in range(3):
        clock[0] += 31
        reaper.sweep()

    assert redis.llen("queue:q") == 3
    assert rig.errors == []
