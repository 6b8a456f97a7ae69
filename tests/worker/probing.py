"""HTTP requests to a health listener, byte by byte."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

from tests.worker.rig import Rig, wait_for
from wurk_django.config import Config
from wurk_django.worker.launcher import Launcher

HOST = "127.0.0.1"
LISTEN = f"{HOST}:0"


@dataclass(frozen=True)
class Reply:
    status: int
    head: str
    body: str
    took_s: float

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


def send(port: int, request: bytes, timeout_s: float = 5.0) -> Reply | None:
    """Send bytes, read until the listener closes; None when it closes without a word."""
    started = time.monotonic()
    with socket.create_connection((HOST, port), timeout_s) as connection:
        connection.sendall(request)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
    if not received:
        return None
    head, _, body = received.decode().partition("\r\n\r\n")
    return Reply(int(head.split(" ")[1]), head, body, time.monotonic() - started)


def get(port: int, path: str, verb: str = "GET") -> Reply:
    reply = send(port, f"{verb} {path} HTTP/1.1\r\nHost: probe\r\n\r\n".encode())
    assert reply is not None, f"no answer to {verb} {path}"
    return reply


def port_of(launcher: Launcher) -> int:
    return wait_for(lambda: launcher.health.port, what="the health listener")


def probed(rig: Rig, config: Config | None = None, **options: Any) -> tuple[Launcher, int]:
    """A running worker and the port of its listener."""
    options.setdefault("health_check", LISTEN)
    launcher = rig.launcher(config or rig.config(**options))
    return launcher, port_of(launcher)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def can_bind(port: int) -> bool:
    """Does nobody have this port?"""
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False
