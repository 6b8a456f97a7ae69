"""Django settings of the tests."""

from __future__ import annotations

from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "tests"
USE_TZ = True
DEBUG = False
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "wurk_django",
]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
WURK = {"REDIS": "redis://127.0.0.1:1/0"}  # nobody listens: a test names its own server
