"""Background jobs for Django on Redis: never lost, always visible, wire-compatible with Sidekiq 8.

The public names are loaded when they are first used: importing this package costs nothing and touches no Redis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from .client import Client
    from .jobs import CurrentJob, Job, current_job, job

__version__ = VERSION

_HOMES = {
    "Client": "client",
    "CurrentJob": "jobs",
    "Job": "jobs",
    "current_job": "jobs",
    "job": "jobs",  # not in a module `job`: importing that would put the module in the place of the decorator
}

__all__ = ["Client", "CurrentJob", "Job", "__version__", "current_job", "job"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
