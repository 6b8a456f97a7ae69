"""`manage.py wurk quiet` and `manage.py wurk stop`: reach workers through Redis, wherever they run."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from ..config import Config
from ..errors import ConfigurationError
from ..storage import processes

Write = Callable[[str], object]


def add_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("identity", nargs="?", help="one process, as `status` names it")
    which.add_argument("--all", action="store_true", help="every process of this Redis, also those of other programs")


def quiet(config: Config, options: Mapping[str, Any], write: Write) -> int:
    """Processes take no more jobs; the running ones go on."""
    return _send(config, options["identity"], "TSTP", "goes quiet", write)


def stop(config: Config, options: Mapping[str, Any], write: Write) -> int:
    """Processes finish within their timeout and end."""
    return _send(config, options["identity"], "TERM", "stops", write)


def _send(config: Config, identity: str | None, signal: str, told: str, write: Write) -> int:
    living = {process.identity: process for process in processes.all_processes(config.redis)}
    if identity is not None and identity not in living:
        known = ", ".join(living) or "no process"
        raise ConfigurationError(f"no process is named {identity!r:.200}; there is {known}")
    chosen = list(living.values()) if identity is None else [living[identity]]
    reached = 0
    for process in chosen:
        if process.embedded:
            write(f"{process.identity} lives in another program, which decides when it stops")
            continue
        processes.send_signal(config.redis, process.identity, signal)
        reached += 1
        write(f"{process.identity} {told} at its next heartbeat")
    if not chosen:
        write("no process runs")
    return 0 if reached or identity is None else 1
