"""The jobs that this process knows, by their name on the wire.

A class name from Redis is looked up here and nowhere else: nothing is imported, no dots are walked, no attribute is
read by name (docs/spec/safety.md, S-02). Jobs enter when their module is imported and their class or function is
declared.
"""

from __future__ import annotations

from typing import Any

from .errors import ConfigurationError, UnknownJob

_jobs: dict[str, type[Any]] = {}


def register(name: str, job_class: type[Any]) -> None:
    """Make a job known. Declaring the same class again (a reloaded module) replaces it; another one is an error."""
    known = _jobs.get(name)
    if known is not None and _place_of(known) != _place_of(job_class):
        raise ConfigurationError(
            f"two jobs are named {name!r}: {_place_of(known)} and {_place_of(job_class)}; give one of them name=…"
        )
    _jobs[name] = job_class


def find(name: str) -> type[Any]:
    """The job class of this name. Raises UnknownJob."""
    try:
        return _jobs[name]
    except KeyError:
        raise UnknownJob(
            f"no job named {name!r:.200} is declared in this process; jobs are found in the modules `jobs` and `tasks`"
            " of the installed apps"
        ) from None


def get(name: object) -> type[Any] | None:
    """The job class of this name, or None."""
    return _jobs.get(name) if isinstance(name, str) else None


def names() -> list[str]:
    """Every known name, sorted."""
    return sorted(_jobs)


def _place_of(job_class: type[Any]) -> str:
    return f"{job_class.__module__}.{job_class.__qualname__}"
