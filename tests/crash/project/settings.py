"""Settings of the project, the worker's from the environment: CRASH_WURK is a JSON object that is added to WURK."""

from __future__ import annotations

import json
import os
import time
from functools import partial

if "CRASH_CLOCK_S" in os.environ:  # a wall clock that is wrong by so many seconds; the monotonic one is right
    time.time = partial(lambda now, off_s: now() + off_s, time.time, float(os.environ["CRASH_CLOCK_S"]))

SECRET_KEY = "crash"
USE_TZ = True
DEBUG = False
INSTALLED_APPS = ["wurk_django", "tests.crash.project"]
WURK = {
    "REDIS": os.environ["CRASH_REDIS"],
    "HEARTBEAT_INTERVAL": 0.5,
    "HEARTBEAT_TTL": 2,
    "REAPER_INTERVAL": 1,
    "REAPER_GRACE": 1,
    "POISON_LIMIT": 1000,  # the kills come from outside: none of the jobs is to blame
    "SCHEDULER_INITIAL_WAIT": 0,
    "POLL_INTERVAL_AVERAGE": 0.2,
    "DEATH_HANDLERS": ["tests.crash.project.jobs.on_death"],
    **json.loads(os.environ.get("CRASH_WURK", "{}")),
}
