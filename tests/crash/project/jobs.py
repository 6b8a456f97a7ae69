"""Jobs that write into the ledger: one line for each start, end, failure and death.

CRASH_DIR holds the ledger, and files by which a test reaches into a running job: see `spring`, `is_first` and
`wait_for`. A line is one write to a file opened for appending, so that no process can tear another's.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from wurk_django import Job, current_job, job

DIRECTORY = Path(os.environ["CRASH_DIR"])
LEDGER = os.open(DIRECTORY / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event: str, jid: str, attempt: int | None) -> None:
    os.write(LEDGER, f"{event} {jid} {attempt} {os.getpid()} {time.monotonic_ns()}\n".encode())


def note_here(event: str) -> str:
    """Note an event of the job that runs here; returns its jid."""
    found = current_job()
    assert found is not None
    note(event, found.jid, found.retry_count)
    return found.jid


def spring(trap: str) -> None:
    """Whoever steps first into a trap that the test has laid kills this process."""
    try:
        os.unlink(DIRECTORY / trap)
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def is_first(jid: str) -> bool:
    """Is this the first run of the job, in whatever process?"""
    try:
        os.close(os.open(DIRECTORY / f"ran-{jid}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_for(name: str) -> None:
    """Until the test has made this file."""
    while not (DIRECTORY / name).exists():
        time.sleep(0.002)


@job(name="Work")
def work(ms: float = 0) -> None:
    note_here("start")
    spring("kill-at-first-line")
    time.sleep(ms / 2000)
    spring("kill-mid-perform")
    time.sleep(ms / 2000)
    note_here("end")


@job(name="Hold")
def hold(gate: str) -> None:
    """Runs until the test opens the gate."""
    note_here("start")
    wait_for(gate)
    note_here("end")


@job(name="Long")
def long() -> None:
    """Without end at its first run, until the test says that all is calm; then short."""
    if is_first(note_here("start")):
        wait_for("calm")
    note_here("end")


class Flaky(Job, name="Flaky"):
    """Fails at its first run; due again after 1 to 11 seconds."""

    @staticmethod
    def retry_in(_count: int, _error: BaseException, _payload: Any) -> int:
        return 1

    def perform(self, ms: float = 0) -> None:
        first = is_first(note_here("start"))
        time.sleep(ms / 1000)
        note_here("fail" if first else "end")
        if first:
            raise RuntimeError("the first run fails")


@job(name="FailAt")
def fail_at(gate: str) -> None:
    """Fails at its first run, when the test opens the gate."""
    if not is_first(note_here("start")):
        note_here("end")
        return
    wait_for(gate)
    note_here("fail")
    raise RuntimeError("the first run fails")


@job(name="Doomed", retry=0)
def doomed() -> None:
    """Fails, and goes to the dead set."""
    note_here("start")
    note_here("fail")
    raise RuntimeError("it always fails")


@job(name="Dropped", retry=False)
def dropped() -> None:
    """Fails, and is gone after its death handlers."""
    note_here("start")
    note_here("fail")
    raise RuntimeError("it always fails")


def on_death(payload: dict[str, Any], _error: BaseException) -> None:
    spring("kill-before-death-handler")
    note("death", payload["jid"], None)
    spring("kill-after-death-handler")
