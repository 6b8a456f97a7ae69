"""What `bench.push` loads for wurk-django: a configured Django, and the two ways of sending."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from wurk_django.jobs import JobFunction

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bench.contestants.wurk_project.settings")
django.setup()

from bench import workload  # noqa: E402
from bench.contestants.wurk_project import jobs  # noqa: E402 - the registry needs the settings

JOBS: dict[str, JobFunction[[int, str], None]] = {
    "noop": jobs.noop,
    "sleep": jobs.sleep,
    "cpu": jobs.cpu,
    "started": jobs.started,
}


def push_many(job: str, rows: Iterable[workload.Row]) -> None:
    """Send all rows, a thousand a round trip."""
    JOBS[job].perform_bulk(list(rows))


def push_one(job: str) -> Callable[[int, str], object]:
    """The call that sends one job."""
    return JOBS[job].perform_async
