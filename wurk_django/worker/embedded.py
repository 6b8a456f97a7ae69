"""A worker inside a host's process, such as a web server's (docs/spec/core.md §13.3).

The host keeps its signals, its process title and its exit; it says when the worker starts, goes quiet and stops.
"""

from __future__ import annotations

import os
import threading

from ..config import DEFAULT_QUEUE, Config
from ..errors import ConfigurationError
from . import process
from .launcher import Launcher

CONCURRENCY = 2  # a host has threads of its own

_mutex = threading.Lock()
_running: list[int] = []  # the pid of the process that has one; a fork leaves the child free to have its own


class Embedded:
    """One worker; made before anything else has frozen the configuration, one at a time in a process.

    Without capsules in the configuration it serves the queue `default` with two threads.
    """

    def __init__(self, config: Config) -> None:
        if config.frozen:
            raise ConfigurationError("this configuration already belongs to a worker; make another one")
        if not config.capsules:
            config.capsule("default", [DEFAULT_QUEUE], CONCURRENCY)
        self._config = config
        self._launcher: Launcher | None = None

    def run(self, *, async_beat: bool = True) -> None:
        """Start; returns when the worker takes jobs. An error leaves nothing behind that was started.

        Without `async_beat` the host calls `heartbeat` itself, at least every HEARTBEAT_INTERVAL.
        """
        with _mutex:
            if os.getpid() in _running:
                raise ConfigurationError("this process has an embedded worker already; stop it first")
            _running[:] = [os.getpid()]
        try:
            process.check(self._config)
            launcher = Launcher(self._config, embedded=True)
            launcher.start(beating=async_beat)
        except BaseException:
            self._forget()
            raise
        self._launcher = launcher

    def heartbeat(self) -> None:
        """Beat once."""
        self._started().heartbeat.beat()

    def quiet(self) -> None:
        """Take no more jobs; what runs goes on."""
        self._started().quiet()

    def stop(self) -> None:
        """Wind down within TIMEOUT; what does not finish goes back to its queue. Does nothing when nothing runs."""
        launcher, self._launcher = self._launcher, None
        if launcher is None:
            return
        try:
            launcher.stop()
        finally:
            self._forget()

    def _started(self) -> Launcher:
        if self._launcher is None:
            raise ConfigurationError("this embedded worker does not run")
        return self._launcher

    def _forget(self) -> None:
        with _mutex:
            _running.clear()
