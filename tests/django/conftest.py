"""The Django face: settings that a test may change, and a project whose commands run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis as redis_py

from wurk_django import conf, config
from wurk_django.config import Config

PROJECT = Path(__file__).resolve().parent / "project"
CHECKOUT = PROJECT.parents[2]
DEADLINE_S = 30.0


class Configure(Protocol):
    """Sets WURK to these keys (and REDIS) and gives the configuration that comes of it."""

    def __call__(self, **wurk: Any) -> Config: ...


@pytest.fixture
def configure(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """`configure(CONCURRENCY=9)`: the settings of this test, on the test's own Redis."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    made: list[Config] = []

    def with_settings(**wurk: Any) -> Config:
        settings.WURK = {"REDIS": redis_url, **wurk}
        config.set_default_factory(conf.load)
        made.append(config.default())
        return made[-1]

    yield with_settings
    config.set_default_factory(conf.load)
    for each in made:
        each.reset_redis_pools()


@pytest.fixture
def queued(redis: redis_py.Redis) -> Callable[..., list[dict[str, Any]]]:
    """What waits on a queue, the next to run first."""

    def payloads(queue: str = "default") -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in redis.lrange(f"queue:{queue}", 0, -1)[::-1]]

    return payloads


@pytest.fixture
def scheduled(redis: redis_py.Redis) -> Callable[[], list[tuple[dict[str, Any], float]]]:
    """What waits in the schedule: payloads and their times."""
    return lambda: [(json.loads(raw), score) for raw, score in redis.zrange("schedule", 0, -1, withscores=True)]


class Project:
    """`project/` as a user runs it: each call is a process. `wurk` goes into its settings."""

    def __init__(self, url: str | None, scratch: Path) -> None:
        self.url = url
        self.scratch = scratch
        self.path = PROJECT

    def environment(self, **wurk: Any) -> dict[str, str]:
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "WURK_EXTRA": json.dumps(wurk), "SCRATCH": str(self.scratch)}
        for name in ("REDIS_URL", "DJANGO_SETTINGS_MODULE", "DEBUG_INVOCATION"):
            env.pop(name, None)
        return {**env, "REDIS_URL": self.url} if self.url else env

    def manage(self, *arguments: str, **wurk: Any) -> subprocess.CompletedProcess[str]:
        """Run manage.py to its end."""
        return self.python("manage.py", *arguments, **wurk)

    def python(self, *arguments: str, **wurk: Any) -> subprocess.CompletedProcess[str]:
        """Run Python in the project's directory to its end."""
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.path, env=self.environment(**wurk),
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    def start(self, *arguments: str, **wurk: Any) -> subprocess.Popen[bytes]:
        """Start manage.py in a process group of its own; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments], cwd=self.path, env=self.environment(**wurk),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def noted(self, name: str = "notes") -> list[Any]:
        """What the project's jobs wrote down, in order."""
        path = self.scratch / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def project(redis_url: str, tmp_path: Path) -> Project:
    """The project, with the test's Redis in its environment."""
    return Project(redis_url, tmp_path)
