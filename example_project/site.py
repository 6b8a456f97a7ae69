"""Serves the project on a free port of this machine, in a thread."""

from __future__ import annotations

import threading
from types import TracebackType

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

from .wsgi import application


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the demo's own lines stand on the screen."""


class Site:
    """A context manager: the site answers inside the block."""

    def __init__(self) -> None:
        self._server = ThreadedWSGIServer(("127.0.0.1", 0), _QuietHandler)
        self._server.set_app(StaticFilesHandler(application))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
