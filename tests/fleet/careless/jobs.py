"""Jobs that ask Redis and the database for what only the right answer can be; at import both are asked already."""

from __future__ import annotations

import json
import os

from django.db import connection

from tests.crash.project.jobs import DIRECTORY, note_here
from wurk_django import config, job


def ask_both(token: str) -> None:
    """Raises AssertionError when an answer is somebody else's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", [token])
        assert cursor.fetchone() == (token,)
    assert config.default().redis.execute("ECHO", token) == token.encode()


ask_both("at import")


@job(name="Ask", retry=0)
def ask(number: int) -> None:
    ask_both(f"{os.getpid()} {number}")
    note_here("end")


@job(name="Sockets")
def sockets() -> None:
    """Write down the sockets of this process."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    found = {"pid": os.getpid(), "sockets": [name for name in names if name.startswith("socket:")]}
    found["files"] = [name for name in names if name.endswith("db.sqlite3")]
    scratch = DIRECTORY / f"sockets-{os.getpid()}.new"
    scratch.write_text(json.dumps(found))
    scratch.rename(scratch.with_suffix(".json"))
    note_here("end")
