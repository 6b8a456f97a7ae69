"""Redis servers of the tests' own: one process each, on a free loopback port, in a directory that is removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from wurk_django import embedded, tied_process
from wurk_django.errors import ConfigurationError

DEADLINE_S = 15.0


class NoServerProgram(Exception):
    """There is nothing to run; the message says what to install."""


def find_program() -> Path:
    """WURK_TEST_SERVER chooses: "embedded" (the wheel's Valkey, else a server on PATH) or "system" (redis-server)."""
    choice = os.environ.get("WURK_TEST_SERVER", "embedded")
    if choice == "system":
        found = shutil.which("redis-server")
        if found is None:
            raise NoServerProgram("WURK_TEST_SERVER=system, but there is no redis-server on PATH")
        return Path(found)
    if choice != "embedded":
        raise NoServerProgram(f"WURK_TEST_SERVER is 'embedded' or 'system', not {choice!r}")
    try:
        return embedded.find_binary()
    except ConfigurationError as error:
        raise NoServerProgram(str(error)) from error


class RedisServer:
    """One server: start it, hurt it, start it again at the same port with the same data.

    Nothing is written to disk without `append_only`; with it every write is synced before it is answered, unless
    `appendfsync` says "everysec". `config` adds directives, `environment` variables of the process (LD_PRELOAD).
    The kernel ends it with the test process. `close` also removes its directory.
    """

    def __init__(
        self,
        *,
        append_only: bool = False,
        appendfsync: str = "always",
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.program = find_program()
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="wurk-redis-"))
        self.port = _free_port()
        self.config = {
            "save": "",
            "appendonly": "yes" if append_only else "no",
            "appendfsync": appendfsync,
            "maxmemory-policy": "noeviction",
            "enable-debug-command": "yes",
            **(config or {}),
        }
        self.environment = dict(environment or {})
        self._process: tied_process.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *, wait: bool = True) -> RedisServer:
        """Start the process; wait until it answers PING, unless told not to (to watch it load)."""
        assert not self.is_running(), "the server runs already"
        argv = [str(self.program), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory)]
        for name, value in self.config.items():
            argv += [f"--{name}", *(value.split() or [""])]
        with open(self._log_path, "ab") as log:
            self._process = tied_process.spawn(
                argv,
                signum=signal.SIGKILL,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self, timeout: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + timeout
        while not self._answers():
            if not self.is_running() or time.monotonic() > deadline:
                raise AssertionError(f"the server did not come up:\n{self.log()}")
            time.sleep(0.002)

    def stop(self, timeout: float = DEADLINE_S) -> None:
        """End it as an administrator would (SIGTERM); SIGKILL when it does not listen."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, as a crash or the OOM killer would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self, *, kill: bool = False, empty: bool = False) -> None:
        """Stop it, or kill it, and start it at the same port; `empty` throws its data away."""
        if kill:
            self.kill()
        else:
            self.stop()
        if empty:
            shutil.rmtree(self.directory)
            self.directory.mkdir()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_running():
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def client(self, *, db: int = 0, timeout: float = 10.0) -> redis.Redis:
        """A plain client for assertions: bytes in, bytes out, no retries. Close it, or use it as a context manager."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            db=db,
            protocol=2,
            decode_responses=False,
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )

    def config_set(self, **directives: str | int) -> None:
        """CONFIG SET, with underscores for the hyphens: `config_set(maxmemory="1mb")`."""
        with self.client() as client:
            for name, value in directives.items():
                client.config_set(name.replace("_", "-"), value)

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(64).startswith(b"+PONG")
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
