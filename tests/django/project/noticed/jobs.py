"""Jobs that write down what they saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from wurk_django import Job, current_job, job


def note(what: Any) -> None:
    with open(Path(os.environ["SCRATCH"]) / "notes", "a") as file:
        file.write(json.dumps(what) + "\n")


@job
def add(left: int, right: int) -> None:
    note(left + right)


@job
async def add_later(left: int, right: int) -> None:
    note(left + right)


@job(queue="who")
def who() -> None:
    _far_below()


def _far_below() -> None:
    found = current_job()
    assert found is not None
    note([found.jid, found.name, found.queue, found.retry_count])


@job
def imported() -> None:
    note(sorted(sys.modules))


class Flaky(Job, retry=2):
    """Fails at first, then notes what its second run knows of itself."""

    def perform(self) -> None:
        found = current_job()
        assert found is not None
        if found.retry_count is None:
            raise ValueError("not yet")
        note([self.jid, found.retry_count])


def demo(once: bool) -> int:
    note(["demo", once])
    return 3
