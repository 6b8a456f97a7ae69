"""`manage.py wurk pause` and `manage.py wurk unpause`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from ..api import queues
from ..config import Config


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", nargs="+", help="a queue, which need not exist yet")


def pause(config: Config, options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """No worker takes jobs from these queues; pushes and running jobs go on."""
    for name in options["queue"]:
        write(f"{name} {'is paused' if queues.pause(name, config) else 'was paused already'}")
    return 0


def unpause(config: Config, options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """Workers take jobs from these queues again."""
    for name in options["queue"]:
        write(f"{name} {'is served again' if queues.unpause(name, config) else 'was not paused'}")
    return 0
