"""The jobs that every Python contestant runs, and the stamps by which they are timed.

A stamp is one line, `number nanoseconds`, appended to the file in BENCH_STAMPS by one write, so that any number of
processes may share it. The clock is the system's monotonic one, which all processes of a host share.
`contestants/sidekiq_app/workload.rb` is the same in Ruby; change both together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias

SLEEP_S = 0.010

Row: TypeAlias = list[Any]
"""The arguments of one job: a number and a short text, as a JSON array would hold them."""

_STRIDE = int(os.environ.get("BENCH_STRIDE", "1"))
_SPINS = int(os.environ.get("BENCH_SPINS", "1"))
_STAMPS = os.open(os.environ.get("BENCH_STAMPS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def stamp(number: int) -> None:
    """Write down that job `number` runs now."""
    os.write(_STAMPS, b"%d %d\n" % (number, time.monotonic_ns()))


def noop(number: int, text: str) -> None:
    """Do nothing; every BENCH_STRIDE-th number leaves a stamp."""
    if number % _STRIDE == 0:
        stamp(number)


def sleep(number: int, text: str) -> None:
    """Wait as a job does that talks to a slow service."""
    if number % _STRIDE == 0:
        stamp(number)
    time.sleep(SLEEP_S)


def cpu(number: int, text: str) -> None:
    """Keep the interpreter busy for about a millisecond."""
    if number % _STRIDE == 0:
        stamp(number)
    spin(_SPINS)


def spin(loops: int) -> int:
    """A fixed amount of pure Python; a deadline instead would count waiting for the GIL as work."""
    total = 0
    for step in range(loops):
        total += step & 7
    return total


def started(sent_ns: int, text: str) -> None:
    """Write down when it was sent, which is its number, and when it started."""
    stamp(sent_ns)


JOBS: dict[str, Callable[[int, str], None]] = {"noop": noop, "sleep": sleep, "cpu": cpu, "started": started}
