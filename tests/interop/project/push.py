"""What `push.rb` is for Sidekiq: the public face of wurk-django, driven by one JSON command a line on stdin.

Command: {"op": "<name>", ...fields}. Answer: {"ok": <value>} or {"error": "<class>: <message>"}. Ends with stdin.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from peer.jobs import JOBS  # noqa: E402  (jobs need the apps)

from wurk_django import Client  # noqa: E402

Command = dict[str, Any]


def setter(command: Command) -> Any:
    """The job of the command, with its options set when there are any."""
    job, options = JOBS[command["class"]], command.get("options")
    return job.set(**options) if options else job


OPERATIONS: dict[str, Callable[[Command], Any]] = {
    "push": lambda c: Client().push(c["item"]),
    "push_bulk": lambda c: Client().push_bulk(c["item"]),
    "perform_async": lambda c: setter(c).perform_async(*c["args"], **c.get("kwargs", {})),
    "perform_in": lambda c: setter(c).perform_in(c["interval"], *c["args"]),
    "perform_at": lambda c: setter(c).perform_at(c["at"], *c["args"]),
    "perform_bulk": lambda c: setter(c).perform_bulk(c["args"]),
}


def answer(line: str) -> dict[str, Any]:
    command = json.loads(line)
    try:
        return {"ok": OPERATIONS[command["op"]](command)}
    except Exception as error:  # the test that asked is told, and goes on
        return {"error": f"{type(error).__name__}: {error}"}


for asked in sys.stdin:
    print(json.dumps(answer(asked)), flush=True)
