"""A real sentinel of the tests' own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import redis as redis_py

from tests.connection.conftest import wait_for
from tests.support.servers import _free_port, find_program
from wurk_django import tied_process


class Sentinel:
    """A sentinel that watches the servers at these ports, each under a name. Alone it decides about a failover."""

    def __init__(self, watched: Mapping[str, int], directory: Path, down_after_ms: int = 60_000) -> None:
        self.port = _free_port()
        path = directory / "sentinel.conf"
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {directory}", "protected-mode no"]
        for name, port in watched.items():
            lines += [
                f"sentinel monitor {name} 127.0.0.1 {port} 1",
                f"sentinel down-after-milliseconds {name} {down_after_ms}",
                f"sentinel failover-timeout {name} 5000",
            ]
        path.write_text("\n".join(lines) + "\n")
        self._process = tied_process.spawn(
            [str(find_program()), str(path), "--sentinel"],
            signum=signal.SIGKILL,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ),
        )
        wait_for(self._answers, what="the sentinel")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def execute(self, *command: str) -> object:
        with redis_py.Redis(port=self.port, protocol=2, socket_timeout=5) as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        try:
            return self.execute("PING") is not None
        except redis_py.RedisError:
            return False
