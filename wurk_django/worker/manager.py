"""The threads of one capsule: start them, replace what dies, wind them down."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from ..clock import monotonic
from ..config import Capsule
from ..errors import RedisRefused, RedisUnavailable
from .busy import Busy, Tally
from .dispatcher import Dispatcher
from .event_loop import EventLoop
from .processor import Processor
from .runner import Runner

LOOK_S = 0.25  # how soon a wait for running jobs notices that it has less time
UNWIND_S = 3.0  # what an interrupted job has for its `finally` blocks


class Manager:
    """Made by the launcher for each capsule; its threads end in `stop`."""

    def __init__(
        self,
        capsule: Capsule,
        index: int,
        busy: Busy,
        tally: Tally,
        loop: EventLoop,
        show_alive: Callable[[], int] = lambda: 0,
    ) -> None:
        self.capsule = capsule
        self.dispatcher = Dispatcher(capsule, index, capsule.config.report, show_alive)
        self._runner = Runner(capsule, busy, loop)
        self._tally = tally
        self._mutex = threading.Lock()
        self._stopping = False
        self._started = 0
        self._deadline = math.inf
        self._processors: list[Processor] = []

    def start(self) -> None:
        """Start the threads."""
        self.dispatcher.start()
        with self._mutex:
            for _ in range(self.capsule.concurrency):
                self._add()

    def quiet(self) -> None:
        """Take no more jobs; running ones continue."""
        with self._mutex:
            self._stopping = True
        self.dispatcher.quiet()

    def stop(self, deadline: float) -> None:
        """Wait for running jobs until `deadline` (monotonic), then give them back and interrupt them."""
        self.quiet()
        self.hurry(deadline)
        while (late := self._alive()) and (left_s := self._deadline - monotonic()) > 0:
            late[0].join(min(left_s, LOOK_S))
        if self._alive():
            self._hard_stop()
        try:
            self.dispatcher.flush()
        except (RedisUnavailable, RedisRefused) as error:
            self.capsule.config.report(error, "acknowledging the last jobs")  # they stay private; the reaper finds them
        self.dispatcher.close()

    def hurry(self, deadline: float) -> None:
        """Wait no longer than this for running jobs, in a stop that is under way or still to come."""
        self._deadline = min(self._deadline, deadline)

    @property
    def idle(self) -> bool:
        """No thread has a job and nothing is claimed or unacknowledged."""
        return self.dispatcher.empty and not any(processor.work for processor in self._alive())

    def _hard_stop(self) -> None:
        late = self._alive()
        running = [work for work in (processor.work for processor in late) if work is not None]
        try:
            self.dispatcher.requeue_running(running)  # first: a job may start elsewhere while it still unwinds here
        except (RedisUnavailable, RedisRefused) as error:
            self.capsule.config.report(error, "giving back running jobs")
        for processor in late:
            processor.switch.interrupt()
        deadline = monotonic() + UNWIND_S
        for processor in late:
            processor.join(max(deadline - monotonic(), 0))

    def _alive(self) -> list[Processor]:
        with self._mutex:
            return [processor for processor in self._processors if processor.is_alive()]

    def _add(self) -> None:
        self._started += 1
        processor = Processor(self._started, self.dispatcher, self._runner, self._tally.cell(), self._died)
        self._processors.append(processor)
        processor.start()

    def _died(self, processor: Processor) -> None:
        with self._mutex:
            if processor in self._processors:
                self._processors.remove(processor)
            if not self._stopping and len(self._processors) < self.capsule.concurrency:
                self._add()
