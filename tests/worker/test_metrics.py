"""/metrics: the numbers of the fleet and of this process, in Prometheus' text format."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from tests.support.proxy import Proxy
from tests.worker.probing import LISTEN, get, probed
from tests.worker.rig import Recorder, Rig, enqueue, payload, wait_for
from wurk_django.storage.queues import Summary
from wurk_django.worker import exposition, identity, vitals
from wurk_django.worker.exposition import Fleet, render

SAMPLE = re.compile(
    r'([a-z_]+)(?:\{([a-z]+)="((?:[^"\\\n]|\\[\\"n])*)"\})? (-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|\+Inf)'
)
NAMES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def read(text: str) -> dict[tuple[str, str], float]:
    """The samples by name and label; refuses what Prometheus would refuse."""
    assert text.endswith("\n")
    samples: dict[tuple[str, str], float] = {}
    typed: set[str] = set()
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            _, word, name, *_ = line.split(" ")
            if word == "TYPE":
                assert name not in typed, f"{name} is declared twice"
                typed.add(name)
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        assert found[1] in typed, f"{found[1]} has no TYPE before it"
        label = re.sub(r"\\.", lambda escape: NAMES[escape[0]], found[3] or "")
        assert (found[1], label) not in samples, f"{line} stands there twice"
        samples[found[1], label] = float(found[4])
    return samples


def scrape(port: int) -> dict[tuple[str, str], float]:
    reply = get(port, "/metrics")
    assert reply.status == 200
    assert "\r\nContent-Type: text/plain; version=0.0.4" in reply.head
    return read(reply.body)


@pytest.mark.oracle("extras:HL-3")
def test_the_numbers_of_a_fleet(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    # given: one running job, waiting, scheduled, failed and dead ones, another process
    jobs.gated_job("slow")
    _launcher, port = probed(rig, concurrency=2)
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: jobs.calls)
    enqueue(redis, 'odd"\\', payload(enqueued_at=int((time.time() - 60) * 1000)), payload())
    redis.zadd("schedule", {b"1": time.time() + 100, b"2": time.time() + 100})
    redis.zadd("retry", {b"1": time.time() + 100})
    redis.zadd("dead", {b"1": time.time(), b"2": time.time(), b"3": time.time()})
    redis.mset({"stat:processed": 12, "stat:failed": 5})
    redis.sadd("processes", "ruby:1:abc", "lapsed:2:def")
    redis.hset("ruby:1:abc", mapping={"info": json.dumps({"concurrency": 7}), "busy": 3, "beat": time.time()})

    def settled() -> bool:
        return scrape(port)["wurk_busy", ""] == 4

    wait_for(settled, what="the beat that tells of the running job")
    numbers = scrape(port)

    assert numbers["wurk_redis_up", ""] == 1
    assert numbers["wurk_processed_total", ""] == 12
    assert numbers["wurk_failed_total", ""] == 5
    assert numbers["wurk_queue_size", 'odd"\\'] == 2
    assert 60 <= numbers["wurk_queue_latency_seconds", 'odd"\\'] < 65
    assert numbers["wurk_queue_size", "default"] == 0
    assert numbers["wurk_scheduled_size", ""] == 2
    assert numbers["wurk_retry_size", ""] == 1
    assert numbers["wurk_dead_size", ""] == 3
    assert numbers["wurk_processes", ""] == 2, "the lapsed one does not count"
    assert numbers["wurk_concurrency", ""] == 9
    mine = str(os.getpid())
    assert numbers["wurk_process_busy", mine] == 1
    assert numbers["wurk_process_concurrency", mine] == 2
    assert numbers["wurk_process_rss_bytes", mine] > 1_000_000
    assert 0 <= numbers["wurk_process_heartbeat_age_seconds", mine] < 5
    assert numbers["wurk_process_quiet", mine] == 0
    assert ("wurk_process_busy", "1") not in numbers, "a process of another tree has its own /metrics"


def test_a_child_tells_of_its_siblings(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(health_check=LISTEN)
    config.fleet_size = 3
    launcher, port = probed(rig, config)
    sibling = f"{identity.host()}:1234:{identity.NONCE}"
    redis.sadd("processes", sibling)
    redis.hset(sibling, mapping={"info": "{}", "busy": 4, "concurrency": 5, "rss": 10, "beat": 1, "quiet": "true"})
    launcher.quiet()

    numbers = scrape(port)

    assert numbers["wurk_swarm_children_expected", ""] == 3
    assert numbers["wurk_swarm_children_fresh", ""] == 1
    assert numbers["wurk_process_busy", "1234"] == 4
    assert numbers["wurk_process_rss_bytes", "1234"] == 10_240
    assert numbers["wurk_process_heartbeat_age_seconds", "1234"] > 1e9
    assert numbers["wurk_process_quiet", "1234"] == numbers["wurk_process_quiet", str(os.getpid())] == 1


@pytest.mark.oracle("extras:HL-4")
def test_without_redis_the_series_of_the_fleet_are_absent_and_those_of_the_process_stay(rig: Rig, proxy: Proxy) -> None:
    _launcher, port = probed(rig, rig.config(url=proxy.url, health_check=LISTEN))
    proxy.refuse = True
    proxy.reset_all()

    numbers = scrape(port)

    assert numbers["wurk_redis_up", ""] == 0
    assert numbers["wurk_process_busy", str(os.getpid())] == 0
    absent = ("wurk_queue_size", "wurk_processed_total", "wurk_busy", "wurk_dead_size", "wurk_swarm_children_fresh")
    assert not {name for name, _ in numbers} & set(absent)
    proxy.refuse = False


@pytest.mark.oracle("extras:HL-2")
def test_scrapers_share_one_look_at_redis_a_second_also_a_failed_one(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(vitals, "monotonic", lambda: now[0])
    launcher = rig.launcher()
    redis.set("stat:processed", 1)
    assert "wurk_processed_total 1\n" in launcher.vitals.metrics()

    redis.set("stat:processed", 2)
    assert "wurk_processed_total 1\n" in launcher.vitals.metrics()
    now[0] += 1.01
    assert "wurk_processed_total 2\n" in launcher.vitals.metrics()

    redis.delete("processes")
    redis.set("processes", "of a wrong type")
    now[0] += 1.01
    assert "wurk_redis_up 0\n" in launcher.vitals.metrics()
    redis.delete("processes")
    assert "wurk_redis_up 0\n" in launcher.vitals.metrics()
    now[0] += 1.01
    assert "wurk_redis_up 1\n" in launcher.vitals.metrics()


def test_metrics_can_be_switched_off(rig: Rig) -> None:
    _launcher, port = probed(rig, health_metrics=False)

    assert get(port, "/metrics").status == 404
    assert get(port, "/live").status == 200


@pytest.mark.oracle("extras:HL-6")
def test_queues_beyond_a_thousand_are_added_up() -> None:
    queues = [Summary(f"q{number:04}", 2, 1.5, False) for number in range(1003)]

    numbers = read(render(Fleet(0, 0, {}, queues), [], 1, 1))

    assert numbers["wurk_queue_size", "_other"] == 6
    assert len([name for name, _ in numbers if name == "wurk_queue_size"]) == exposition.MAX_QUEUES + 1
    assert len([name for name, _ in numbers if name == "wurk_queue_latency_seconds"]) == exposition.MAX_QUEUES


@given(
    st.dictionaries(
        st.text(min_size=1), st.tuples(st.integers(0, 2**53), st.floats(0, 1e12, allow_nan=False)), max_size=5
    )
)
@pytest.mark.oracle("extras:HL-6")
def test_any_queue_name_comes_back_from_the_text(queues: dict[str, tuple[int, float]]) -> None:
    summaries = [Summary(name, size, latency_s, False) for name, (size, latency_s) in queues.items()]

    numbers = read(render(Fleet(1, 0, {}, summaries), [], 1, 1))

    for name, (size, latency_s) in queues.items():
        assert numbers["wurk_queue_size", name] == size
        assert numbers["wurk_queue_latency_seconds", name] == latency_s
