"""`manage.py wurk check`: would a worker start here, and would it find its jobs? Takes nothing from any queue."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from .. import conf, registry
from ..config import Config
from ..storage import queues
from ..worker import boot


def add_arguments(_parser: ArgumentParser) -> None:
    """None."""


def run(config: Config, _options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """Print what was looked at; the first thing that is wrong is an error. Wrong settings never come so far."""
    write("settings: fine")
    found = boot.check_server(config)
    version = ".".join(map(str, found.version))
    policy = found.policy or "not told"
    write(f"server: {found.product} {version} at {config.redis_options.describe()}, maxmemory-policy {policy}")
    write(f"jobs: {len(registry.names())} declared")
    served = {name for each in conf.load_slots({}) or [config] for name in each.queue_names()}
    left = [queue.name for queue in queues.summaries(config.redis) if queue.name not in served and queue.size]
    if left:
        write(f"note: these queues have jobs and are not served by these settings: {', '.join(left)}")
    return 0
