"""The jobs of the scenarios. They write a ledger: one line for each start, end, failure, death and drop.

A line is one write to a file opened for appending, so that no process can tear another's and a kill loses none.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from wurk_django import Job, current_job, job


class _Book:
    """Where this process writes; set once after its fork."""

    descriptor = -1
    directory = Path()


def open_ledger(directory: Path) -> None:
    """Write into the ledger of this directory from now on."""
    _Book.directory = directory
    _Book.descriptor = os.open(directory / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event: str, jid: str, attempt: int | None = None) -> None:
    os.write(_Book.descriptor, f"{event} {jid} {attempt} {os.getpid()} {time.monotonic_ns()}\n".encode())


def is_calm() -> bool:
    """Has the fault happened, and does another worker recover now?"""
    return (_Book.directory / "calm").exists()


def note_here(event: str) -> int | None:
    """Note an event of the job that runs here; returns its retry count."""
    found = current_job()
    assert found is not None
    note(event, found.jid, found.retry_count)
    return found.retry_count


class Refused(Exception):
    """What the failing jobs raise."""


@job(name="Work")
def work(ms: float = 0) -> None:
    note_here("start")
    if ms:
        time.sleep(ms / 1000)
    note_here("end")


@job(name="AsyncWork")
async def async_work() -> None:
    note_here("start")
    note_here("end")


@job(name="Hold")
def hold() -> None:
    """Runs until it is interrupted, or until all is calm."""
    note_here("start")
    while not is_calm():
        time.sleep(0.002)
    note_here("end")


@job(name="Flaky")
def flaky() -> None:
    """Fails at its first attempt."""
    if note_here("start") is None:
        note_here("fail")
        raise Refused("the first attempt fails")
    note_here("end")


@job(name="Doomed")
def doomed() -> None:
    """Fails always."""
    note_here("start")
    note_here("fail")
    raise Refused("it always fails")


class Killed(Job, name="Killed"):
    """Fails, and says that it shall go to the dead set at once."""

    @staticmethod
    def retry_in(_count: int, _error: BaseException, _payload: Any) -> str:
        return "kill"

    def perform(self) -> None:
        note_here("start")
        raise Refused("no more of this")


class Discarded(Job, name="Discarded"):
    """Fails, and says that it shall be forgotten."""

    @staticmethod
    def retry_in(_count: int, _error: BaseException, _payload: Any) -> str:
        return "discard"

    def perform(self) -> None:
        note_here("start")
        raise Refused("never mind")


def on_death(payload: dict[str, Any], _error: BaseException) -> None:
    """A death handler: a job that is not stored is dropped, and is gone rightly."""
    stored = payload.get("retry") is not False and payload.get("dead") is not False and "discarded_at" not in payload
    note("death" if stored else "drop", payload["jid"])
