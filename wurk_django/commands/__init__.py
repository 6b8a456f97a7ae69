"""The sub-commands of `manage.py wurk`: each is a small function that prints and returns an exit code.

Exit codes: 0 done, 1 not done, 2 wrong arguments. An error of ours is told in one line and is a 1.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..config import Config
from . import check, deploy, health, pause, signals, status

Write = Callable[[str], object]


@dataclass(frozen=True)
class Subcommand:
    """One word after `manage.py wurk`. The caller opens the configuration and closes it afterwards."""

    help: str
    add_arguments: Callable[[ArgumentParser], object]
    run: Callable[[Config, Mapping[str, Any], Write], int]


ALL: dict[str, Subcommand] = {
    "status": Subcommand("Show processes, queues and sets.", status.add_arguments, status.run),
    "quiet": Subcommand("Let processes take no more jobs.", signals.add_arguments, signals.quiet),
    "stop": Subcommand("Let processes finish and end.", signals.add_arguments, signals.stop),
    "pause": Subcommand("Let no worker take jobs from queues.", pause.add_arguments, pause.pause),
    "unpause": Subcommand("Let workers take jobs from queues again.", pause.add_arguments, pause.unpause),
    "health": Subcommand("Ask the worker on this machine how it is.", health.add_arguments, health.run),
    "check": Subcommand("Look at settings, server and jobs; start nothing.", check.add_arguments, check.run),
    "mark-deploy": Subcommand("Mark this minute in the graphs.", deploy.add_arguments, deploy.run),
}
