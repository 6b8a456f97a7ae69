"""As little as a project can have: no database, no admin, no sessions."""

from __future__ import annotations

import json
import os

SECRET_KEY = "project"
USE_TZ = True
DEBUG = os.environ.get("PROJECT_DEBUG") == "1"
BASE_DIR = os.environ["SCRATCH"]
INSTALLED_APPS = ["wurk_django", "noticed", "plain"]
WURK = json.loads(os.environ.get("WURK_EXTRA", "{}"))
