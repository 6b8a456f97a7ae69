"""A job that takes its process with it, in real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis as redis_py

from tests.worker.rig import enqueue, numbered, payload, queued

WORKER = """
import os, sys, time
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.jobs import job
from wurk_django.storage import sorted_sets
from wurk_django.worker.launcher import Launcher

config = Config(
    Options(heartbeat_interval=0.1, heartbeat_ttl=0.6, reaper_grace=0, reaper_interval=0.3, fetch_block=0.2, timeout=1),
    RedisOptions(sys.argv[1]),
)
config.capsule("default", ["q"], 2)

@job(name="Killer")
def killer():
    os._exit(137)

@job(name="work")
def work(number):
    pass

launcher = Launcher(config)
launcher.start()
deadline = time.monotonic() + 20
while not sorted_sets.sizes(config.redis)["dead"] and time.monotonic() < deadline:
    time.sleep(0.02)
launcher.stop()
"""


def run_worker(url: str) -> int:
    return subprocess.run([sys.executable, "-c", WORKER, url], timeout=30, check=False, capture_output=True).returncode


@pytest.mark.oracle("safety:K26", "safety:K4", "reports:P07")
def test_a_job_that_ends_its_process_runs_four_times_and_is_buried_and_its_neighbours_end(
    redis: redis_py.Redis, redis_url: str
) -> None:
    poison = payload("Killer", queue="q")
    enqueue(redis, "q", *numbered(3), poison, *numbered(3))

    codes = [run_worker(redis_url) for _ in range(5)]

    assert codes == [137, 137, 137, 137, 0]
    assert redis.zrange("dead", 0, -1) == [poison]
    assert queued(redis, "q") == []
    assert list(redis.scan_iter("queue:*")) == []
