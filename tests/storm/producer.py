"""A producer: `python -m tests.storm.producer <url> <ledger> <seed> <rate>` pushes jobs of every kind until it is told.

Each job is noted in the ledger before its push, as created, and after it, as acknowledged: `<event> <jid> <kind> <ns>`.
Ends at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from random import Random
from typing import Any

from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import RedisRefused, RedisUnavailable

QUEUES = ["high", "default", "default", "low"]
KINDS = ["Work"] * 8 + ["Flaky", "Doomed", "Dropped"]
MILLISECONDS = [0, 0, 0.3, 2, 3, 5, 40, 100, 400, 800]
REFUSED_S = 0.05
OPTIONS: dict[str, dict[str, Any]] = {"Doomed": {"retry": 0}, "Dropped": {"retry": False}}


def jobs(dice: Random) -> list[dict[str, Any]]:
    """One burst of jobs of one kind."""
    kind = dice.choice(KINDS)
    item: dict[str, Any] = {"class": kind, "queue": dice.choice(QUEUES), **OPTIONS.get(kind, {})}
    if dice.random() < 0.2:
        item["at"] = time.time() + dice.random() * 3
    return [
        {**item, "args": [dice.choice(MILLISECONDS)] if kind in ("Work", "Flaky") else []}
        for _ in range(dice.choice([1, 1, 1, 5, 20]))
    ]


def main(url: str, path: str, seed: str, rate: str) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _frame: told.append(signum))
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    dice, client = Random(f"{seed} {path}"), Client(Config(redis=RedisOptions(url)))
    while not told:
        for item in jobs(dice):
            jid = os.urandom(12).hex()
            os.write(ledger, f"created {jid} {item['class']} {time.monotonic_ns()}\n".encode())
            try:
                client.push({**item, "jid": jid})
            except (RedisUnavailable, RedisRefused):
                time.sleep(REFUSED_S)
            else:
                os.write(ledger, f"acked {jid} {item['class']} {time.monotonic_ns()}\n".encode())
            time.sleep(dice.random() * 2 / float(rate))


if __name__ == "__main__":
    main(*sys.argv[1:])
