"""Settings; BENCH_ENGINE tells whose worker loads them, so that neither carries the other's imports."""

from __future__ import annotations

import os
from typing import Any

SECRET_KEY = "for the benchmark only"
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "bench.contestants.wurk_project.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "bench.contestants.wurk_project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}

if os.environ.get("BENCH_ENGINE", "wurk") == "wurk":
    INSTALLED_APPS.insert(0, "wurk_django")
    WURK = {"REDIS": os.environ["BENCH_REDIS_URL"]}
