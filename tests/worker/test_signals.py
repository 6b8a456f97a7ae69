"""Real signals to a real process: what each does, that they are served one at a time, and that a stop is a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.worker.rig import blocked, enqueue, payload, stays, wait_for
from wurk_django.worker.signals import SignalLoop

ROOT = Path(__file__).parents[2]
WORKER = """
import logging, signal, sys, time
from wurk_django import job
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker import process

signal.signal(signal.SIGTSTP, lambda *_: print("stood before", flush=True))
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")

@job(name="slow")
def slow(seconds):
    time.sleep(seconds)

config = Config(Options(timeout=5, heartbeat_interval=0.1, fetch_block=0.3), RedisOptions(sys.argv[1]))
config.capsule("default", ["default"], 2)
for event in ("startup", "quiet", "shutdown", "exit"):
    config.hooks.on(event, lambda event=event: print("event", event, flush=True))
code = process.run(config, on_ready=lambda _: print("ready", flush=True))
print("code", code, flush=True)
"""


class Worker:
    """A worker process and what it has printed so far."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def prints(self, text: str) -> None:
        wait_for(lambda: any(text in line for line in self.lines), 15, f"{text!r} in {self.lines}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def worker(redis_url: str) -> Iterator[Worker]:
    worker = Worker(redis_url)
    try:
        worker.prints("ready")
        yield worker
    finally:
        worker.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_lets_the_running_job_finish_and_a_second_one_changes_nothing(
    signum: int, worker: Worker, redis: redis_py.Redis
) -> None:
    enqueue(redis, "default", payload("slow", 0.5))
    wait_for(lambda: "start" in worker.lines)

    worker.send(signum)
    worker.prints("event shutdown")
    worker.send(signum)

    assert worker.process.wait(10) == 0
    worker.prints("code 0")
    assert "done" in worker.lines
    assert [line for line in worker.lines if line.startswith("event")] == [
        "event startup", "event quiet", "event shutdown", "event exit",
    ]  # fmt: skip
    assert redis.exists("processes", "queue:default") == 0
    assert redis.get("stat:processed") == b"1"


def test_quiet_stops_the_taking_and_keeps_the_beating(worker: Worker, redis: redis_py.Redis) -> None:
    wait_for(lambda: blocked(redis) == 1)

    worker.send(signal.SIGTSTP)
    worker.prints("stood before")
    worker.prints("event quiet")
    worker.send(signal.SIGTSTP)
    [me] = redis.smembers("processes")
    wait_for(lambda: redis.hget(me, "quiet") == b"true")
    enqueue(redis, "default", payload("slow", 0))

    assert stays(lambda: redis.llen("queue:default") == 1, 0.4)
    assert worker.process.poll() is None
    assert worker.lines.count("event quiet") == 1
    worker.send(signal.SIGTERM)
    assert worker.process.wait(10) == 0


def test_a_dump_names_every_thread_and_where_it_stands(worker: Worker) -> None:
    worker.send(signal.SIGTTIN)

    worker.prints("MainThread")
    worker.prints("wurk-default-2")
    worker.prints("wurk-heartbeat")
    worker.prints("signals.py")
    assert worker.process.poll() is None


def test_signals_from_the_fleet_act_like_those_of_the_system(worker: Worker, redis: redis_py.Redis) -> None:
    [me] = redis.smembers("processes")
    key = me.decode() + "-signals"
    redis.lpush(key, "TSTP")
    redis.lpush(key, "TTIN")
    redis.lpush(key, "TERM")

    assert worker.process.wait(10) == 0
    acts = [line for line in worker.lines if line in ("event quiet", "event shutdown") or "MainThread" in line]
    assert acts[0] == "event quiet"
    assert "MainThread" in acts[1]
    assert acts[2] == "event shutdown"


def test_a_log_is_opened_again_on_usr2(worker: Worker) -> None:
    worker.send(signal.SIGUSR2)

    worker.prints("log files are open again")


def test_a_signal_sent_when_the_pipe_is_full_or_closed_is_no_error() -> None:
    loop = SignalLoop()
    for _ in range(70_000):
        loop.send("TTIN")
    os.close(loop._read)
    os.close(loop._write)

    loop.send("TERM")
