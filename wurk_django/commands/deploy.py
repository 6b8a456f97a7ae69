"""`manage.py wurk mark-deploy`: a line in the graphs where a new version went live."""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from .. import conf
from ..config import Config
from ..errors import ConfigurationError
from ..storage import deploys


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("label", nargs="?", help="else the last commit of the project's git repository")


def run(config: Config, options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """Mark this minute, once for a label that several machines mark."""
    label = options["label"] or _last_commit()
    stamp = deploys.mark(config.redis, label)
    write(f"marked {stamp}: {label}" if stamp else f"marked already within the last minute: {label}")
    return 0


def _last_commit() -> str:
    command = ["git", "log", "-1", "--format=%h %s"]
    try:
        done = subprocess.run(
            command, cwd=conf.base_directory(), capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError("there is no git commit to take the label from; name one") from error
    return done.stdout.strip()
