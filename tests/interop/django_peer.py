"""Our side as the Ruby peer meets it: a client and a worker of the project in `project/`, each a real process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.ruby import PeerClient, PeerWorker

PROJECT = Path(__file__).resolve().parent / "project"
CHECKOUT = PROJECT.parents[2]


def django_environment(url: str, settings: dict[str, Any]) -> dict[str, str]:
    """The environment of a process of the project; `settings` are added to its WURK."""
    path = os.pathsep.join(part for part in (str(CHECKOUT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": path, "REDIS_URL": url, "WURK_EXTRA": json.dumps(settings)}


class DjangoClient(PeerClient):
    """wurk-django's public face: the operations of `project/push.py`."""

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__([sys.executable, "push.py"], django_environment(url, settings), PROJECT)


class DjangoWorker(PeerWorker):
    """`manage.py wurk` of the project."""

    def __init__(
        self,
        url: str,
        queues: Sequence[str] = ("default",),
        concurrency: int = 2,
        timeout_s: int = 5,
        **settings: Any,
    ) -> None:
        flags = [part for queue in queues for part in ("-q", queue)]
        command = [sys.executable, "manage.py", "wurk", "-c", str(concurrency), "-t", str(timeout_s), *flags]
        super().__init__(command, url, django_environment(url, settings), PROJECT)
