"""Settings of the example shop: SQLite, mail into files, and the embedded server unless REDIS_URL names another."""

from __future__ import annotations

import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = BASE_DIR / "example_project" / "var"  # everything that the shop writes: database, files, mail
VAR.mkdir(exist_ok=True)

DEBUG = True
SECRET_KEY = "an example, run on your own machine only"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "wurk_django",
    "example_project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],  # this project's overrides of the apps' templates
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR / "shop.sqlite3",
        # The site and the worker's threads write at the same time: readers must not wait, writers may.
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]  # this project's overrides of the apps' files
MEDIA_ROOT = VAR / "media"
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": VAR / "mail"},
        }
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = VAR / "mail"
DEFAULT_FROM_EMAIL = "The Example Shop <shop@example.com>"

SHOP_WAREHOUSE_URL = "http://127.0.0.1:9/pick"  # nobody listens there: the demo's job that dies

WURK = {
    "REDIS": os.environ.get("REDIS_URL") or "embedded",
    "QUEUES": ["critical,4", "default,2", "mail,2", "documents,1"],
    "SCHEDULER_INITIAL_WAIT": 0.2,  # one process: nothing to spread, so look for due jobs at once
    "SERVER_MIDDLEWARE": ["example_project.shop.records.KeepRecord"],
    "DEATH_HANDLERS": ["example_project.shop.records.note_death"],
    "DEMO": "example_project.demo.run",
}
