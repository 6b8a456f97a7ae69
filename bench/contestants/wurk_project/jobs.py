"""The jobs as a user of wurk-django would write them."""

from __future__ import annotations

from bench import workload
from wurk_django import job


@job
def noop(number: int, text: str) -> None:
    """Do nothing."""
    workload.noop(number, text)


@job
def sleep(number: int, text: str) -> None:
    """Wait ten milliseconds."""
    workload.sleep(number, text)


@job
def cpu(number: int, text: str) -> None:
    """Compute for a millisecond."""
    workload.cpu(number, text)


@job
def started(sent_ns: int, text: str) -> None:
    """Write down when it was sent and when it started."""
    workload.started(sent_ns, text)
