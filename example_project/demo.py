"""`manage.py wurk --demo`: a shop at work, with nothing to install or start by hand."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command

from wurk_django import config, tied_process

from .shop import shelves
from .site import Site
from .workload import Counts, Workload, enqueue, standing

DEADLINE_S = 60  # for the whole workload; a retry waits up to 11 seconds by Sidekiq's formula
LOOK_EVERY_S = 0.2
STOP_TIMEOUT_S = 30
INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
USER = PASSWORD = "demo"  # of the admin, on this machine only


def run(once: bool) -> int:
    """Start Redis, the site and a worker, enqueue the workload, show what becomes of it.

    Returns 0 when the counts are those of the workload, else 1. Without `once` the shop stays open until Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(once)
    except KeyboardInterrupt:
        print()
        return INTERRUPTED


def _run(once: bool) -> int:
    redis = config.default().redis
    redis.execute("PING", idempotent=True)  # the first connection starts the embedded server
    call_command("migrate", verbosity=0)
    _welcome_user()
    with Site() as site, _worker(settings.VAR / "worker.log") as worker:
        print(f"The shop is open at {site.url}", f"  its admin at {site.url}admin/ ({USER} / {PASSWORD})", sep="\n")
        code = _work_off(enqueue(shelves.fill()), worker)
        if not once:
            print("The shop stays open; Ctrl-C closes it.", flush=True)
            _wait_for_interrupt()
    config.default().reset_redis_pools()
    return code


def _work_off(workload: Workload, worker: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + DEADLINE_S
    progress = _Progress()
    while workload.open and time.monotonic() < deadline and worker.poll() is None:
        progress.show(f"done {workload.counts().done}/{workload.expected.done} · {standing()}")
        time.sleep(LOOK_EVERY_S)
    progress.end()
    counts = workload.counts()
    _print_table(workload.expected, counts)
    if counts == workload.expected:
        return 0
    print(f"The counts differ. The worker's log is in {settings.VAR / 'worker.log'}", file=sys.stderr)
    return 1


@contextmanager
def _worker(log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process as anybody starts one: `manage.py wurk`. Ends with the block, and with this process."""
    manage = settings.BASE_DIR / "manage.py"
    with open(log_path, "wb") as log:
        worker = tied_process.spawn(
            [sys.executable, str(manage), "wurk"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.terminate()
        try:
            worker.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


class _Progress:
    """One line that changes on a terminal; elsewhere a line for each change."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._shown = ""

    def show(self, line: str) -> None:
        if line == self._shown:
            return
        print(f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", flush=True)
        self._shown = line

    def end(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", flush=True)


def _print_table(expected: Counts, counts: Counts) -> None:
    print(f"{'':<12}{'expected':>10}{'counted':>10}")
    for (name, wanted), (_, found) in zip(expected.rows(), counts.rows(), strict=True):
        print(f"{name:<12}{wanted:>10}{found:>10}{'' if wanted == found else '   differs'}")


def _welcome_user() -> None:
    users = get_user_model().objects
    if not users.filter(username=USER).exists():
        users.create_superuser(USER, password=PASSWORD)


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
