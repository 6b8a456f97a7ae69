"""The process that loads a queue for a Python contestant: `python -m bench.push APP JOB COUNT MODE`.

Prints the seconds that the pushes alone took. `contestants/sidekiq_app/push.rb` is the same in Ruby: change both.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from bench import workload

TEXT = "short"
PACE_S = 0.020


class App(Protocol):
    """What an app module offers; only those measured in `single` and `paced` mode need `push_one`."""

    def push_many(self, job: str, rows: Iterable[workload.Row]) -> None:
        """Load all rows the fast way."""

    def push_one(self, job: str) -> Callable[[int, str], object]:
        """The call that a user makes to send one job."""


def bulk(app: App, job: str, count: int) -> None:
    """Load the queue the fastest way that the contestant has."""
    app.push_many(job, [[number, TEXT] for number in range(count)])


def single(app: App, job: str, count: int) -> None:
    """One call a job, as a web request would."""
    push = app.push_one(job)
    for number in range(count):
        push(number, TEXT)


def paced(app: App, job: str, count: int) -> None:
    """One job every PACE_S, each carrying the time at which it was sent."""
    push = app.push_one(job)
    due = time.monotonic()
    for _ in range(count):
        due += PACE_S
        time.sleep(max(0.0, due - time.monotonic()))
        push(time.monotonic_ns(), TEXT)


MODES: dict[str, Callable[[App, str, int], None]] = {"bulk": bulk, "single": single, "paced": paced}


def main() -> None:
    """Push, and print how long it took."""
    module, job, count, mode = sys.argv[1:]
    app = cast("App", importlib.import_module(module))
    begin = time.monotonic()
    MODES[mode](app, job, int(count))
    print(time.monotonic() - begin)


if __name__ == "__main__":
    main()
