"""One job."""

from __future__ import annotations

from wurk_django import job


@job
def from_tasks() -> None:
    """Nothing to do; it is enough to be known."""
