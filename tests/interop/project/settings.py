"""Settings of the project that meets the Ruby peer. Short periods, so that tests are; `WURK_EXTRA` adds to it."""

from __future__ import annotations

import json
import os

SECRET_KEY = "for the interop tests only"
DEBUG = False
USE_TZ = True
INSTALLED_APPS = ["wurk_django", "peer"]
DATABASES: dict[str, dict[str, str]] = {}

WURK = {
    "REDIS": os.environ["REDIS_URL"],
    "POLL_INTERVAL": 0.1,
    "SCHEDULER_INITIAL_WAIT": 0.1,
    "HEARTBEAT_INTERVAL": 0.3,
    "TAG": "interop",
    **json.loads(os.environ.get("WURK_EXTRA", "{}")),
}
