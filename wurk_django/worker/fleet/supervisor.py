"""The parent of a fleet: it forks the children, watches them, replaces them and ends them. It runs no jobs.

One thread, one loop. Every tick looks at what has happened and does what is due; nothing in it waits for a child or
for Redis (docs/spec/reliability.md §11.4).
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence

from ... import connection
from ...clock import monotonic
from ...config import Config
from .. import job_log, process, systemd
from ..signals import STOP, SignalLoop
from . import child as child_life
from .health import Health
from .lookout import Beats, Lookout
from .rolling import Rolling
from .slots import Child, Slot
from .system import System

log = logging.getLogger("wurk")

TICK_S = 0.2
SHORTEST_PAUSE_S = 0.02
LOOK_S = 1.0  # between looks at the heartbeats
REPEAT_TERM_S = 1.0  # while stopping: a child forked just before can miss the first
LAST_REAP_S = 0.25  # for those that were killed
LAST_ERRANDS_S = 2.0  # for the jobs of those that died during the stop
HOPELESS_BOOTS = 5  # of every slot in a row: the fault is not in one child
HANDLED = ("INT", "TERM", "TSTP", "TTIN", "USR1", "USR2", "CHLD")
RELAYED = {"TSTP": signal.SIGTSTP, "TTIN": signal.SIGTTIN, "USR2": signal.SIGUSR2}


class Supervisor:
    """Made in the main thread of the parent; `run` is its life."""

    def __init__(
        self,
        configs: Sequence[Config],
        *,
        burst: bool = False,
        system: Callable[[SignalLoop], System] = System,
        lookout: Callable[[Config], Lookout] = Lookout,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._config = configs[0]
        self._options = self._config.options
        self._burst = burst
        self._clock = clock
        self.signals = SignalLoop(HANDLED)
        self.system = system(self.signals)
        self.lookout = lookout(self._config)
        self.slots = [Slot(number, config) for number, config in enumerate(configs)]
        self.children: dict[int, Child] = {}
        self.rolling = Rolling(self)
        self._health = Health(self._options)
        self._quiet = False
        self._announced = False
        self._stopping_since: float | None = None
        self._repeat_term_at = 0.0
        self._exit_code = process.EXIT_OK
        self._look_at = 0.0
        self._pet_at = 0.0
        self._watchdog_s = systemd.watchdog_period_s()

    def run(self) -> int:
        """Keep the fleet up until a signal says stop; returns the exit code."""
        self.signals.trap()
        try:
            self.system.warm_up()
            threads = sum(slot.config.total_concurrency for slot in self.slots)
            log.info("a fleet of %d processes with %d threads", len(self.slots), threads)
            while not self.tick():
                for name in self.signals.wait(self._pause_s()):
                    self.act(name)
        finally:
            self.lookout.finish(LAST_ERRANDS_S)
        log.info("bye")
        return self._exit_code

    # --- signals --------------------------------------------------------------------------------------------------

    def act(self, name: str) -> None:
        """Do what a signal asks for."""
        if self._stopping_since is not None:
            return
        if name in STOP:
            log.info("%s: stopping", name)
            self._stop(self._clock(), process.EXIT_OK)
        elif name == "USR1":
            log.info("USR1: replacing the children one after the other")
            self.rolling.add(slot.child for slot in self.slots if slot.child is not None)
        elif name in RELAYED:
            self._quiet = self._quiet or name == "TSTP"
            if name == "USR2":
                job_log.reopen()
            for each in self.children.values():
                self.system.send(each.pid, RELAYED[name])

    # --- the loop -------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Do everything that is due; True when the fleet has ended."""
        now = self._clock()
        self._reap(now)
        self._hear(now)
        self._pet_watchdog(now)
        self.lookout.work_off()
        if self._stopping_since is not None:
            return self._advance_stop(now, self._stopping_since)
        if self._burst and all(slot.finished for slot in self.slots) and not self.lookout.burying:
            return True
        if self._is_hopeless():
            log.error("every child has failed %d times before its first heartbeat; giving up", HOPELESS_BOOTS)
            self._stop(now, process.EXIT_FAILED)
            return False
        for slot in self.slots:
            if slot.is_due(now):
                slot.child = self.fork(slot, now)
        self.rolling.advance(now)
        self._check_health(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self.lookout.look(list(self.children))
        return False

    def fork(self, slot: Slot, now: float) -> Child | None:
        """Start a child of this slot; None when that is not possible now."""
        if self.lookout.busy:  # at the next tick: a fork copies one thread only
            return None
        quiet, burst, config, parent = self._quiet, self._burst, slot.config, self.system.pid
        self._close_everything()
        try:
            pid = self.system.fork(lambda: child_life.live(config, self.signals, parent, quiet=quiet, burst=burst))
        except OSError as error:
            pause_s = slot.put_off(now)
            log.error("no child can be forked: %s; the next try in %g s", error, pause_s)
            return None
        slot.due_at = None
        self.lookout.forget(pid)
        self.children[pid] = Child(pid, slot, now)
        return self.children[pid]

    def end(self, child: Child, now: float) -> None:
        """Ask a child to stop; it is killed when it takes longer than a stop may."""
        if child.asked_to_end_at is None:
            child.asked_to_end_at = now
        self.system.send(child.pid, signal.SIGTERM)

    def _pause_s(self) -> float:
        due = [slot.due_at for slot in self.slots if slot.child is None and slot.due_at is not None]
        return max(min([TICK_S, *(at - self._clock() for at in due)]), SHORTEST_PAUSE_S)

    def _close_everything(self) -> None:
        """What must not cross a fork. Nothing that opens a socket may come between this and the fork."""
        self.lookout.close()
        for slot in self.slots:
            slot.config.reset_redis_pools()
        for close in self._config.before_fork:
            try:
                close()
            except Exception as error:  # a connection that is broken already must not end the fleet
                self._config.report(error, "closing what a child must not inherit")
        connection.close_free_connections()

    def _reap(self, now: float) -> None:
        for child in list(self.children.values()):
            code = self.system.reap(child.pid)
            if code is not None:
                self._buried(child, code, now)
        self.system.reap_strays(frozenset(self.children))

    def _buried(self, child: Child, code: int, now: float) -> None:
        del self.children[child.pid]
        child.ended = True
        slot, lived_s = child.slot, now - child.started_at
        self.lookout.bury(child)
        if self.rolling.child_ended(child, now):
            return
        slot.child = None
        if self._stopping_since is not None:
            return
        if self._burst and code == process.EXIT_OK:
            slot.finished = True
            return
        if child.beat is None and code != process.EXIT_OK:
            slot.failed_boots += 1
        pause_s = slot.put_off(now, lived_s)
        log.warning("child %d ended with %d after %.1f s; the next one in %g s", child.pid, code, lived_s, pause_s)

    def _hear(self, now: float) -> None:
        for answer in self.lookout.answers():
            if isinstance(answer, Beats):
                self._health.hear(answer, self.children, now)
                for child in self.children.values():
                    if child.beat is not None:
                        child.slot.failed_boots = 0
            elif answer.had_beaten:
                answer.child.slot.failed_boots = 0
        alive = sum(slot.child is not None and slot.child.beat is not None for slot in self.slots)
        if not self._announced and alive >= (len(self.slots) + 1) // 2:
            self._announced = True
            systemd.notify("READY=1")

    def _is_hopeless(self) -> bool:
        return not self.lookout.burying and all(slot.failed_boots >= HOPELESS_BOOTS for slot in self.slots)

    def _check_health(self, now: float) -> None:
        living = [child for child in self.children.values() if child.asked_to_end_at is None]
        if self._quiet or self.rolling.active:
            self._health.excuse(living, now)
        for child in self._health.hung(living, now):
            self.end(child, now)
        self.rolling.add(self._health.too_fat([slot.child for slot in self.slots if slot.child], self.system, now))
        for child in self.children.values():
            late = child.asked_to_end_at is not None and now - child.asked_to_end_at >= self._stop_allowance_s
            if late and not child.killed:
                self._kill(child)

    def _pet_watchdog(self, now: float) -> None:
        if self._watchdog_s is not None and now >= self._pet_at:
            self._pet_at = now + self._watchdog_s
            systemd.notify("WATCHDOG=1")

    # --- the end --------------------------------------------------------------------------------------------------

    @property
    def _stop_allowance_s(self) -> float:
        return self._options.timeout + process.GRACE_S

    def _stop(self, now: float, code: int) -> None:
        systemd.notify("STOPPING=1")
        self._exit_code = code
        self._stopping_since = now
        self._repeat_term_at = now
        self.rolling.abort()

    def _advance_stop(self, now: float, since: float) -> bool:
        if not self.children:
            return True
        waited_s = now - since
        if waited_s >= self._stop_allowance_s + LAST_REAP_S:
            return True
        if waited_s >= self._stop_allowance_s:
            for child in self.children.values():
                if not child.killed:
                    self._kill(child)
        elif now >= self._repeat_term_at:
            self._repeat_term_at = now + REPEAT_TERM_S
            for child in self.children.values():
                self.end(child, now)
        return False

    def _kill(self, child: Child) -> None:
        log.warning("child %d did not end within %g s of its TERM; killing it", child.pid, self._stop_allowance_s)
        child.killed = True
        self.system.send(child.pid, signal.SIGKILL)
