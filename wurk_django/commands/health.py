"""`manage.py wurk health`: the probe, for people. `python -m wurk_django.health` is the one for orchestrators."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from .. import health
from ..config import Config
from ..worker.health import read_address

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # where a worker may listen, and nobody can ask


def add_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--live", dest="check", action="store_const", const="live", default="live", help="the default")
    which.add_argument("--ready", dest="check", action="store_const", const="ready", help="does it do its work?")
    parser.add_argument("--port", type=int, help="else that of WURK['HEALTH_CHECK']")


def run(config: Config, options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """Print what the worker says; 0 when all is well."""
    host, port = read_address(config.options.health_check) or (EVERYWHERE[0], health.PORT)
    good, told = health.ask(options["check"], options["port"] or port, "localhost" if host in EVERYWHERE else host)
    write(told)
    return 0 if good else 1
