"""Starts and ends the parts of a worker process, in the order that loses nothing (docs/spec/reliability.md §11.7)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ..clock import monotonic
from ..component import Component
from ..config import Config, Running
from . import identity
from .busy import Busy, Tally
from .event_loop import EventLoop
from .health import Listener
from .heartbeat import Heartbeat
from .leader import Leader
from .manager import Manager
from .reaper import Reaper
from .scheduler import Scheduler
from .vitals import Vitals

log = logging.getLogger("wurk")


class Launcher:
    """One worker, in a process of its own or embedded in a host's. Started once, stopped once."""

    def __init__(
        self, config: Config, *, on_signal: Callable[[str], object] = lambda _name: None, embedded: bool = False
    ) -> None:
        config.freeze()
        self.config = config
        self.busy = Busy()
        self.tally = Tally()
        self._loop = EventLoop()
        self._quieted = False
        self._mutex = threading.Lock()
        self.heartbeat = Heartbeat(config, self.busy, self.tally, on_signal, embedded=embedded)
        self.scheduler = Scheduler(config)
        self.reaper = Reaper(config)
        self.leader = Leader(config, identity.identity())
        self.vitals = Vitals(config, self.busy, self.heartbeat)
        self.health = Listener(config, self.vitals)
        self.managers = [
            Manager(capsule, index, self.busy, self.tally, self._loop, self.heartbeat.show_alive)
            for index, capsule in enumerate(config.capsules.values())
        ]
        running = Running(config, identity.identity(), self.leader.is_leader)
        # In the order of their start. The leader steps down last: nothing that asks it may still be at work then.
        self.components: list[Component] = [self.leader, self.scheduler, self.reaper]
        for make in config.component_makers:
            self.components.extend(make(running))

    @property
    def quieted(self) -> bool:
        """No longer takes jobs."""
        return self._quieted

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing is claimed."""
        return not len(self.busy) and all(manager.idle for manager in self.managers)

    def start(self, *, quiet: bool = False, beating: bool = True) -> None:
        """Start everything, or nothing: what did start is stopped again before the error is raised.

        `quiet`: take no jobs at all, as if it had been quieted before. Not `beating`: the host of an embedded worker
        beats itself after the first time.
        """
        self.config.hooks.fire("startup", self.config.report, reraise=True)
        if quiet:
            self.quiet()
        begun: list[Callable[[], object]] = []
        try:
            begun.append(self.heartbeat.stop)
            self.heartbeat.start() if beating else self.heartbeat.beat()
            for component in self.components:
                begun.append(component.stop)
                component.start()
                if quiet:
                    component.quiet()
            for manager in self.managers if not quiet else ():
                begun.append(partial(manager.stop, monotonic()))
                manager.start()
            begun.append(self.health.stop)
            self.health.start()
        except BaseException:
            self._roll_back(begun)
            raise

    def quiet(self) -> None:
        """Take no more jobs; what runs goes on, and so does the heartbeat."""
        with self._mutex:
            if self._quieted:
                return
            self._quieted = True
        self.vitals.quiet()
        for manager in self.managers:
            manager.quiet()
        for component in self.components:
            component.quiet()
        self.heartbeat.quiet()
        self.config.hooks.fire("quiet", self.config.report)

    def hurry(self, timeout_s: float) -> None:
        """Give running jobs no more than this, in a stop that is under way or still to come; safe from any thread."""
        deadline = monotonic() + timeout_s
        for manager in self.managers:
            manager.hurry(deadline)

    def stop(self) -> None:
        """Wind down within the timeout: running jobs may finish, the rest goes back to its queue."""
        deadline = monotonic() + self.config.options.timeout
        self.quiet()
        if self.config.fleet_size > 1:
            self.health.stop()  # else it answers for siblings that go on: a rolling restart would look like an end
        waiting = [threading.Thread(target=manager.stop, args=(deadline,)) for manager in self.managers]
        for thread in waiting:
            thread.start()
        self.config.hooks.fire("shutdown", self.config.report)
        for thread in waiting:
            thread.join()
        for component in reversed(self.components):
            component.stop()
        self.health.stop()
        self.heartbeat.stop()
        self._loop.stop()
        self.config.reset_redis_pools()
        self.config.hooks.fire("exit", self.config.report)

    def _roll_back(self, begun: list[Callable[[], object]]) -> None:
        for undo in reversed(begun):
            try:
                undo()
            except Exception as error:  # the first error is what the host must see
                self.config.report(error, "rolling back a failed start")
        self._loop.stop()
        self.config.reset_redis_pools()
