"""A fleet without Django: `python -m tests.fleet.program`, told what to do by the JSON in FLEET.

Beside it, jobs that tell about the process they run in. Those of the crash tests are known too.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tests.crash.project import jobs
from wurk_django import config as configs
from wurk_django import job
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker import fleet

TOLD = json.loads(os.environ["FLEET"])
DIRECTORY = jobs.DIRECTORY
QUICK = {
    "timeout": 5,
    "heartbeat_interval": 0.2,
    "heartbeat_ttl": 3,
    "reaper_interval": 60,
    "fetch_block": 0.3,
    "scheduler_initial_wait": 0,
    "poll_interval_average": 0.2,
}


@job(name="Eat")
def eat(megabytes: int) -> None:
    """Hold so much memory for good."""
    _eaten.append(b"x" * (megabytes << 20))
    jobs.note_here("end")


@job(name="Orphans")
def orphans(count: int) -> None:
    """Leave processes behind that end after this one: whoever is process 1 gets them."""
    subprocess.run(["sh", "-c", "for i in $(seq %d); do (sleep 0.2 &) ; done" % count], check=True)  # noqa: UP031
    jobs.note_here("end")


_eaten: list[bytes] = []


def _config(queues: list[str], concurrency: int) -> Config:
    config = Config(Options(**{**QUICK, **TOLD.get("options", {})}), RedisOptions(TOLD["url"]))
    config.capsule("default", queues, concurrency)
    config.hooks.on("fork", _at_fork)
    return config


def _at_fork() -> None:
    jobs.spring("die-at-boot")
    if (DIRECTORY / "always-die-at-boot").exists():
        os._exit(7)
    if (DIRECTORY / "hang-at-boot").exists():
        (DIRECTORY / f"hung-{os.getpid()}").touch()
        time.sleep(600)


def _touch_everything() -> None:
    """What a careless project does at import: it uses Redis."""
    configs.set_default_factory(lambda: Config(redis=RedisOptions(TOLD["url"])))
    for number in range(3):
        configs.default().redis.execute("ECHO", number)


def main() -> int:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(process)d %(message)s")
    for name, value in TOLD.get("constants", {}).items():
        module, constant = name.rsplit(".", 1)
        found: Any = importlib.import_module(f"wurk_django.worker.{module}")
        assert hasattr(found, constant), name
        setattr(found, constant, value)
    if TOLD.get("touch"):
        _touch_everything()
    config = _config(TOLD.get("queues", ["default"]), TOLD.get("concurrency", 2))
    slots = [_config(queues, concurrency) for queues, concurrency in TOLD.get("slots", [])]
    hosted = subprocess.Popen(["sh", "-c", TOLD["host_runs"]]) if "host_runs" in TOLD else None
    if hosted is not None:
        os.waitid(os.P_PID, hosted.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now, and stays one
        (DIRECTORY / "host-program-ended").touch()
    code = fleet.run(config, TOLD.get("count", 2), slots=slots, burst=TOLD.get("burst", False))
    if hosted is not None:
        print("the host's program ended with", hosted.wait(), flush=True)
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    sys.exit(main())
