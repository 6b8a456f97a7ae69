"""Settings of the project: those of the crash tests, with a database."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.project.settings import *  # noqa: F403
from tests.crash.project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.fleet.careless"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(os.environ["CRASH_DIR"]) / "db.sqlite3"}}
