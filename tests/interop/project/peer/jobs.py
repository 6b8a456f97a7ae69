"""The jobs of `worker.rb` once more, in Python and under the same names."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import redis

from wurk_django import Job, current_job, job

FAILURE_MESSAGE = "interop failure: é <b>&</b>"
RAN_KEY = "interop:ran"
LONGEST_S = 60


@cache
def store() -> redis.Redis:
    """A connection of the tests' own, for what they look at."""
    return redis.Redis.from_url(os.environ["REDIS_URL"])


def record(name: str, args: list[Any], kwargs: dict[str, Any] | None = None) -> None:
    """Write down a run: who, what, with which arguments; `kwargs` only when there are any."""
    running = current_job()
    assert running is not None
    row = {"by": "python", "class": name, "jid": running.jid, "args": args, **({"kwargs": kwargs} if kwargs else {})}
    store().rpush(RAN_KEY, json.dumps(row))


@job(name="Recorder")
def record_arguments(*args: Any) -> None:
    """Write down the arguments."""
    record("Recorder", list(args))


@job(name="Failing")
def fail(*args: Any) -> None:
    """Fail in the same words as Ruby's."""
    raise RuntimeError(FAILURE_MESSAGE)


@job(name="Picky")
def fail_in(language: str, **kwargs: Any) -> None:
    """Fail in the language named, work in the other one."""
    if language == "python":
        raise RuntimeError(FAILURE_MESSAGE)
    record("Picky", [language], kwargs)


@job(name="DiesAtOnce", retry=0)
def die_at_once(*args: Any) -> None:
    """Fail, with no retry: to the dead set."""
    raise RuntimeError(FAILURE_MESSAGE)


@job(name="NeverRetried", retry=False)
def fail_unnoticed(*args: Any) -> None:
    """Fail, leaving nothing."""
    raise RuntimeError(FAILURE_MESSAGE)


class Tagged(Job, name="Tagged", queue="low", retry=5, tags=["alpha", "ünïcode"]):
    """Write down the arguments; options on a class."""

    def perform(self, *args: Any) -> None:
        record("Tagged", list(args))


class WithBacktrace(Job, name="WithBacktrace", backtrace=True):
    """Fail some frames deep."""

    def perform(self, *args: Any) -> None:
        self.deeper()

    def deeper(self) -> None:
        raise RuntimeError(FAILURE_MESSAGE)


class WithThreeLines(WithBacktrace, name="WithThreeLines", backtrace=3):
    """The same with a short backtrace."""

    def perform(self, *args: Any) -> None:
        self.descend(5)

    def descend(self, levels: int) -> None:
        if levels == 0:
            self.deeper()
        self.descend(levels - 1)


@job(name="Waiting")
def wait_for_release(release_key: str) -> None:
    """Run until the test pushes to the list that it names."""
    store().blpop([release_key], timeout=LONGEST_S)
    record("Waiting", [release_key])


JOBS: dict[str, Any] = {
    "Recorder": record_arguments,
    "Failing": fail,
    "Picky": fail_in,
    "DiesAtOnce": die_at_once,
    "NeverRetried": fail_unnoticed,
    "Tagged": Tagged,
    "WithBacktrace": WithBacktrace,
    "WithThreeLines": WithThreeLines,
    "Waiting": wait_for_release,
}
