"""Several worker processes under one parent: `manage.py wurk --processes N` (docs/spec/reliability.md §11)."""

from __future__ import annotations

from collections.abc import Sequence

from ...config import Config
from .. import boot, process
from ..signals import enable_crash_dump
from .count import VARIABLES, process_count
from .supervisor import Supervisor

__all__ = ["VARIABLES", "process_count", "run"]


def run(config: Config, count: int, *, slots: Sequence[Config] = (), burst: bool = False) -> int:
    """Keep `count` children at work until a signal says stop; returns the exit code. Only in the main thread.

    `slots`: a configuration for each child instead, where they differ in what they serve. `burst`: each child works
    until the queues are empty, and the fleet ends with the last of them.
    Raises ConfigurationError when the configuration or the server cannot work.
    """
    configs = list(slots) or [config] * count
    for each in configs:
        each.fleet_size = len(configs)
        for capsule in each.capsules.values():
            _ = capsule.server_middleware  # built here once, for all children
    boot.check_server(config)
    enable_crash_dump()
    process.tell_grace(config.options.timeout)
    return Supervisor(configs, burst=burst).run()
