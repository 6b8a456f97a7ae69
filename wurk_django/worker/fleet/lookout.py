"""What a supervisor asks of Redis, without ever waiting for it.

Each errand runs in a thread that lives no longer than it: Redis may hang, and the supervisor must go on reaping and
stopping meanwhile. No child is forked while one runs, so every fork is that of a process with a single thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from ...clock import monotonic
from ...config import Config
from ...connection import Redis
from ...errors import RedisRefused, RedisUnavailable
from ...storage import processes
from .. import identity, reaper
from .slots import Child

log = logging.getLogger("wurk")

RETRY_AFTER_S = 1.0


@dataclass(frozen=True)
class Beats:
    """The last heartbeat of each child, None without one; `of` is None when Redis could not be asked."""

    of: dict[int, bytes | None] | None


@dataclass(frozen=True)
class Buried:
    """A dead child's jobs are back and it has left the process set; had it ever beaten?"""

    child: Child
    had_beaten: bool


Answer = Beats | Buried


class Lookout:
    """Made by the supervisor and used by its one thread. Has a pool of one connection, closed before every fork."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._redis: Redis | None = None
        self._thread: threading.Thread | None = None
        self._burials: deque[Child] = deque()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._retry_at = 0.0  # monotonic; 0: the last burial succeeded

    @property
    def busy(self) -> bool:
        """An errand runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def burying(self) -> bool:
        """There are dead children whose jobs are not back yet."""
        return bool(self._burials)

    def answers(self) -> list[Answer]:
        """What has come back since the last time."""
        found: list[Answer] = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except Empty:
                return found

    def look(self, pids: Sequence[int]) -> None:
        """Ask for the heartbeats of these children. Does nothing while another errand runs."""
        if pids and not self.busy:
            self._run(lambda: self._ask_beats(pids))

    def bury(self, child: Child) -> None:
        """Bring the jobs of a dead child back, as soon as Redis can be reached."""
        self._burials.append(child)

    def forget(self, pid: int) -> None:
        """This pid lives again, as another child of ours: its lists are its own."""
        self._burials = deque(child for child in self._burials if child.pid != pid)

    def work_off(self) -> None:
        """Start the next burial, if there is one and no errand runs."""
        if self._burials and not self.busy and monotonic() >= self._retry_at:
            self._run(self._bury_all)

    def finish(self, timeout_s: float) -> None:
        """At the end of the fleet: what is left to do, within this time."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        self.work_off()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self.close()

    def close(self) -> None:
        """Drop the connection; the next errand opens another one."""
        redis, self._redis = self._redis, None
        if redis is not None:
            redis.close()

    def _run(self, errand: Callable[[], None]) -> None:
        if self._redis is None:
            self._redis = Redis(self._config.redis_options, 1, "supervisor", self._config.on_redis_retry)
        thread = threading.Thread(target=errand, name="wurk-lookout", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads may be had just now
            log.warning("the supervisor cannot ask Redis: %s", error)
            return
        self._thread = thread

    def _ask_beats(self, pids: Sequence[int]) -> None:
        assert self._redis is not None
        try:
            found = processes.last_beats(self._redis, [identity.identity(pid) for pid in pids])
        except Exception as error:  # the edge of a thread; the supervisor asks again
            log.debug("the supervisor cannot see heartbeats: %s", error)
            self._answers.put(Beats(None))
            return
        self._answers.put(Beats(dict(zip(pids, found, strict=True))))

    def _bury_all(self) -> None:
        assert self._redis is not None
        redis = self._redis
        for _ in range(len(self._burials)):
            child = self._burials[0]
            pid, config = child.pid, child.slot.config
            try:
                had_beaten = processes.is_alive(redis, identity.identity(pid))
                reaper.reclaim_child(config, redis, pid)
                processes.deregister(redis, identity.identity(pid))
            except (RedisUnavailable, RedisRefused) as error:
                level = logging.DEBUG if self._retry_at else logging.WARNING
                log.log(level, "the jobs of the dead child %d wait for Redis: %s", pid, error)
                self._retry_at = monotonic() + RETRY_AFTER_S
                return
            except Exception as error:  # a fault of ours: the sweeps of the others bring its jobs back
                config.report(error, f"bringing back the jobs of the dead child {pid}")
                had_beaten = False
            self._retry_at = 0.0
            self._burials.popleft()
            self._answers.put(Buried(child, had_beaten))
