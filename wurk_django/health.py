"""Ask a worker on this machine how it is: `python -m wurk_django.health [--live | --ready] [--port N] [--host NAME]`.

For probes that run a command, such as Docker's HEALTHCHECK. Imports neither Django nor the project nor a Redis client,
so that it costs a container nothing. Exit codes: 0 well, 1 not well or nobody answers, 2 wrong arguments.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

PORT = 7433
TIMEOUT_S = 3.0
USAGE = "usage: python -m wurk_django.health [--live | --ready] [--port N] [--host NAME]"


def ask(check: str, port: int = PORT, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
    """Is this check (`live` or `ready`) passed, and what was answered?"""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(f"GET /{check} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            answer = b""
            while received := connection.recv(4096):
                answer += received
    except OSError as error:
        return False, f"nobody answers on {host} port {port}: {error}"
    head, _, body = answer.decode("utf-8", "replace").partition("\r\n\r\n")
    return head.split(" ")[1:2] == ["200"], body.strip()


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    check, port, host = "live", PORT, "127.0.0.1"
    given = list(arguments)
    while given:
        option, _, value = given.pop(0).partition("=")
        if option in ("--live", "--ready") and not value:
            check = option[2:]
            continue
        if option in ("--port", "--host") and not value and given:
            value = given.pop(0)
        if option == "--port" and value.isdecimal() and 0 < int(value) < 65536:
            port = int(value)
        elif option == "--host" and value:
            host = value
        else:
            with suppress(OSError):
                sys.stderr.write(f"{USAGE}\n")
            return 2
    good, told = ask(check, port, host)
    with suppress(OSError):  # a probe whose output nobody reads
        sys.stdout.write(f"{told}\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
