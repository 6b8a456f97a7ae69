"""Payloads that nobody should load: they go to the dead set unread, by every way that leads to a worker."""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.worker.rig import Recorder, Rig, blocked, enqueue, payload, private, queued, take, wait_for
from wurk_django.wire import MAX_CLAIM_BYTES
from wurk_django.worker import identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
MIB = 1 << 20
PUSH = "return redis.call('LPUSH', KEYS[1], string.rep(ARGV[2], tonumber(ARGV[1])))"


def push_large(redis: redis_py.Redis, key: str, mebibytes: int, of: bytes = b"x") -> None:
    """A payload that the server makes itself, so that this process never holds it."""
    redis.eval(PUSH, 1, key, mebibytes, of * MIB)


class Memory:
    """How far this process has grown since this was made, at its peak."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        self._before = _status("VmHWM")

    @property
    def growth(self) -> int:
        return _status("VmHWM") - self._before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


@pytest.mark.oracle("safety:S-04")
@pytest.mark.parametrize("mebibytes", [9, 100])
@pytest.mark.parametrize("way", ["script", "block"])
def test_a_payload_over_the_cap_is_buried_unread_and_the_next_job_runs_in_time(
    way: str, mebibytes: int, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    memory = Memory()
    if way == "script":
        push_large(redis, "queue:default", mebibytes)
        rig.manager(rig.config(fetch_block=5))
    else:
        rig.manager(rig.config(fetch_block=5))
        wait_for(lambda: blocked(redis) == 1)
        push_large(redis, "queue:default", mebibytes)

    wait_for(lambda: redis.zcard("dead") == 1, 10)
    pushed_at = time.monotonic()
    enqueue(redis, "default", payload("work", "next"))
    wait_for(lambda: jobs.calls, 2)

    assert time.monotonic() - pushed_at < 2
    assert jobs.calls == [("next",)]
    assert memory.growth < 64 * MIB
    assert redis.memory_usage("dead") > mebibytes * MIB
    assert queued(redis) == []
    wait_for(lambda: private(redis) == [])
    assert any("size limit" in message or "not read" in message for message in rig.messages())
    redis.delete("dead")


def test_a_payload_of_exactly_the_cap_is_a_job_like_any_other(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job(act=lambda text: sizes.append(len(text)))
    sizes: list[int] = []
    padding = MAX_CLAIM_BYTES - len(payload("work", ""))
    rig.manager()

    enqueue(redis, "default", payload("work", "x" * padding))
    wait_for(lambda: sizes, 10)

    assert sizes == [padding]
    assert redis.zcard("dead") == 0


@pytest.mark.oracle("safety:S-04")
def test_reconciling_does_not_read_a_payload_over_the_cap(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wurk_django.worker.dispatcher.RECONCILE_S", 0.0)
    push_large(redis, identity.private_list("default", 0), 20)
    stray = payload("work", "stray")
    redis.lpush(identity.private_list("default", 0), stray)
    memory = Memory()
    dispatcher = rig.dispatcher(rig.config(url=proxy.url))

    [work] = take(dispatcher, 1)

    assert work.raw == stray
    assert memory.growth < 16 * MIB
    assert redis.zcard("dead") == 1
    assert private(redis) == [stray]
    redis.delete("dead")


@pytest.mark.oracle("safety:S-04")
def test_a_queue_full_of_large_payloads_is_buried_without_holding_redis_up(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    for letter in b"abcdefghijkl":
        push_large(redis, "queue:default", 9, bytes([letter]))
    enqueue(redis, "default", payload("work", "next"))
    redis.config_resetstat()

    rig.manager(rig.config(concurrency=2))
    wait_for(lambda: jobs.calls, 10)

    assert redis.zcard("dead") == 12
    calls = redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls >= 6, "no more than the idle threads wanted at a time"
    redis.delete("dead")
