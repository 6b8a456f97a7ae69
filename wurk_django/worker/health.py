"""Answers the probes of an orchestrator: a small HTTP listener, off unless HEALTH_CHECK names a port.

`GET /live`, `/ready` and `/metrics`. One thread accepts, one short-lived thread answers each connection: a client that
stalls, or a Redis that hangs, holds up nobody else (docs/spec/reliability.md §12).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import selectors
import socket
import threading
import weakref
from contextlib import suppress
from http import HTTPStatus

from ..clock import monotonic
from ..component import JOIN_TIMEOUT_S
from ..config import Config
from .exposition import CONTENT_TYPE
from .vitals import Verdict, Vitals

log = logging.getLogger("wurk")

DEFAULT_PORT = 7433
BIND_RETRY_S = 5.0  # while a sibling has the port
REQUEST_TIMEOUT_S = 1.0  # for the whole head of a request, and for taking the answer
MAX_HEAD = 8192
MAX_CONNECTIONS = 16
JSON_TYPE = "application/json"

Answer = tuple[HTTPStatus, str, str]  # status, content type, body

_listening: weakref.WeakSet[socket.socket] = weakref.WeakSet()


class Listener:
    """A Component: the last to start. Children of a fleet share one port; whoever has it answers for all."""

    def __init__(self, config: Config, vitals: Vitals) -> None:
        self._config = config
        self._vitals = vitals
        self._address = read_address(config.options.health_check)
        self._bind_error: int | None = None
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._done = threading.Event()
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        self.port: int | None = None  # what the kernel gave; None while another process has it

    def start(self) -> None:
        """Listen from now on, or as soon as the port is free."""
        if self._address is None or self._thread is not None:
            return
        self._wake = socket.socketpair()
        arguments = (*self._address, self._wake[0])
        thread = threading.Thread(target=self._run, args=arguments, name="wurk-health", daemon=True)
        thread.start()
        self._thread = thread  # not before: no more threads may be had, and one that never ran cannot be joined

    def quiet(self) -> None:
        """Go on answering: that this process is on its way out is news, too."""

    def stop(self) -> None:
        """Close the port."""
        self._done.set()
        wake, self._wake = self._wake, None
        if wake is not None:
            with suppress(OSError):
                wake[1].send(b".")
            if self._thread is not None:
                self._thread.join(JOIN_TIMEOUT_S)
            for end in wake:
                end.close()
        self._vitals.close()

    def _run(self, host: str, port: int, wake: socket.socket) -> None:
        while not self._done.is_set():
            listening = self._bind(host, port)
            if listening is None:
                self._done.wait(BIND_RETRY_S)
                continue
            with listening:
                try:
                    self._accept_all(listening, wake)
                except Exception as error:  # the edge of a thread: told, then the port is opened again
                    self._config.report(error, "health listener")
                    self._done.wait(REQUEST_TIMEOUT_S)
            self.port = None

    def _bind(self, host: str, port: int) -> socket.socket | None:
        try:
            listening = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
            )
        except OSError as error:
            self._tell_not_bound(host, port, error)
            return None
        listening.setblocking(False)
        _listening.add(listening)
        self._bind_error = None
        self.port = listening.getsockname()[1]
        log.info("health checks are answered on %s port %d", host, self.port)
        return listening

    def _tell_not_bound(self, host: str, port: int, error: OSError) -> None:
        if error.errno == self._bind_error:
            return  # said already
        self._bind_error = error.errno
        expected = error.errno == errno.EADDRINUSE and self._config.fleet_size > 1  # a sibling answers there
        log.log(
            logging.INFO if expected else logging.WARNING,
            "health checks are not answered: %s port %d: %s; trying again every %g s", host, port, error, BIND_RETRY_S,
        )  # fmt: skip

    def _accept_all(self, listening: socket.socket, wake: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listening, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while not self._done.is_set():
                selector.select()
                with suppress(BlockingIOError, ConnectionError):
                    while not self._done.is_set():
                        self._hand_over(listening.accept()[0])

    def _hand_over(self, client: socket.socket) -> None:
        if not self._slots.acquire(blocking=False):
            with client, suppress(OSError):
                client.setblocking(False)
                client.send(_response(_refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")))
            return
        thread = threading.Thread(target=self._serve, args=(client,), name="wurk-health-answer", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads may be had just now
            self._slots.release()
            client.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                head = _read_head(client)
                if head is None:
                    return
                answer = self._answer(head)
                client.settimeout(REQUEST_TIMEOUT_S)
                client.sendall(_response(answer))
                client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has gone
        except Exception as error:  # the edge of a thread
            self._config.report(error, "health check")
        finally:
            self._slots.release()

    def _answer(self, head: bytes) -> Answer:
        verb, target, *_ = (*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", "")
        path = target.partition("?")[0]
        if path not in ("/live", "/ready", "/metrics") or (
            path == "/metrics" and not self._config.options.health_metrics
        ):
            return _refusal(HTTPStatus.NOT_FOUND, "there are /live, /ready and /metrics")
        if verb != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, self._vitals.metrics()
        return _of_verdict(self._vitals.live() if path == "/live" else self._vitals.ready())


def _close_in_child() -> None:
    """A process that a job forks must not keep the port when its worker is gone."""
    for listening in list(_listening):
        listening.close()


os.register_at_fork(after_in_child=_close_in_child)


def read_address(value: bool | int | str | None) -> tuple[str, int] | None:
    """Host and port out of HEALTH_CHECK: True, a port, "port" or "host:port". None: no listener. Raises ValueError."""
    if value is None or value is False:
        return None
    if value is True:
        return "0.0.0.0", DEFAULT_PORT  # noqa: S104  # probes come from outside the container
    host, _, port = str(value).rpartition(":")
    number = int(port)
    if not 0 <= number <= 65535:
        raise ValueError(f"{number} is no port")
    return host.strip("[]") or "0.0.0.0", number  # noqa: S104


def _read_head(client: socket.socket) -> bytes | None:
    """The head of a request; None when it does not come in time or is too long."""
    deadline = monotonic() + REQUEST_TIMEOUT_S
    head = b""
    while b"\r\n\r\n" not in head:
        left_s = deadline - monotonic()
        if left_s <= 0 or len(head) > MAX_HEAD:
            return None
        client.settimeout(left_s)
        received = client.recv(MAX_HEAD)
        if not received:
            return None
        head += received
    return head


def _of_verdict(verdict: Verdict) -> Answer:
    status = HTTPStatus.OK if verdict.good else HTTPStatus.SERVICE_UNAVAILABLE
    body = {"status": "ok" if verdict.good else "unavailable", "check": verdict.check, "reason": verdict.reason or None}
    return status, JSON_TYPE, json.dumps(body) + "\n"


def _refusal(status: HTTPStatus, reason: str) -> Answer:
    return status, JSON_TYPE, json.dumps({"status": "error", "check": None, "reason": reason}) + "\n"


def _response(answer: Answer) -> bytes:
    status, content_type, body = answer
    encoded = body.encode()
    allow = "Allow: GET\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n{allow}"
        f"Content-Length: {len(encoded)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + encoded
