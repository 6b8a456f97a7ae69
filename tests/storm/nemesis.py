"""The enemy: carries a plan out against the workers, their lines and the server, and writes down what it did."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis as redis_py

from tests.crash import trouble
from tests.crash.harness import Stage, is_claim
from tests.storm.plan import Act
from tests.support.faults import LoseRequest, anything
from tests.support.line import Exchange
from tests.support.processes import WorkerProcess
from tests.support.servers import RedisServer

THREADS = 4
AHEAD = 100  # jobs without work that may be started and unacknowledged beside those that run
QUEUES = ["high,3", "default,2", "low,1"]
BOOT_S = 4.0  # a worker younger than this is not attacked: it may not have a handler for its signals yet
STOP_S = 15.0  # from the request to stop until the end of a worker
JID = re.compile(rb'"jid":"([0-9a-f]{24})"')


class NobodyThere(Exception):
    """Every worker is new or paused: the attack falls flat."""


@dataclass
class Fault:
    """Something that was done: to which processes, when, how many jobs it may make run again."""

    kind: str
    began_ns: int
    ended_ns: int
    budget: int
    pids: frozenset[int] = frozenset()
    jids: frozenset[str] = frozenset()  # of a lost claim


@dataclass
class Slot:
    """A place for a worker: who dies is replaced. `processes` > 1: a fleet."""

    processes: int
    worker: WorkerProcess
    paused: bool = False

    def pids(self) -> list[int]:
        return [self.worker.pid, *children(self.worker.pid)]

    def runners(self) -> list[int]:
        """Those that run jobs."""
        return children(self.worker.pid) if self.processes > 1 else [self.worker.pid]


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@dataclass
class Nemesis:
    """Made for one run. `faults` grows while it works."""

    stage: Stage
    server: RedisServer
    layout: tuple[int, ...]  # processes a slot
    faults: list[Fault] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = [Slot(processes, self._start(processes)) for processes in self.layout]
        self._runners = sum(self.layout)
        self._mutex = threading.Lock()
        self._lasting: list[threading.Thread] = []

    def carry_out(self, plan: list[Act]) -> None:
        began = time.monotonic()
        for act in plan:
            time.sleep(max(0.0, began + act.at_s - time.monotonic()))
            self._replace_the_dead()
            if act.lasts_s:
                thread = threading.Thread(target=self._do, args=(act,), daemon=True)
                self._lasting.append(thread)
                thread.start()
            else:
                self._do(act)

    def make_peace(self) -> None:
        """Wait until what lasts is over, and take every fault back."""
        for thread in self._lasting:
            thread.join(30)
        self.stage.proxy.clear()
        self._replace_the_dead()
        while any(time.monotonic() - slot.worker.started_at < BOOT_S for slot in self.slots):
            time.sleep(0.1)

    def stop_workers(self) -> list[int]:
        for slot in self.slots:
            slot.worker.send(signal.SIGTERM)
        return [slot.worker.wait(STOP_S) for slot in self.slots]

    def _do(self, act: Act) -> None:
        try:
            getattr(self, "_" + act.kind.replace(" ", "_"))(act)
        except NobodyThere:
            return
        except Exception as error:  # of a thread: the run must fail, and say with what
            self.violations.append(f"the enemy failed at {act}: {error!r}")

    def _note(self, kind: str, budget: int, began_ns: int, pids: frozenset[int] = frozenset()) -> None:
        self.faults.append(Fault(kind, began_ns, time.monotonic_ns(), budget, pids))

    # --- workers --------------------------------------------------------------------------------------------------

    def _kill_worker(self, act: Act) -> None:
        with self._victim(act.chance) as slot:
            began_ns, pids = time.monotonic_ns(), frozenset(slot.runners())
            slot.worker.kill()
            # The children of a dead master may go on for a moment, so their jobs too.
            self._note(act.kind, len(pids) * (THREADS + AHEAD), began_ns, pids)
            self._see_to(slot)

    def _kill_child(self, act: Act) -> None:
        fleets = [slot for slot in self.slots if slot.processes > 1 and not slot.paused]
        found = [pid for slot in fleets for pid in slot.runners()]
        if not found:
            return
        pid, began_ns = found[int(act.chance * len(found))], time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._note(act.kind, THREADS + AHEAD, began_ns, frozenset({pid}))

    def _restart_worker(self, act: Act) -> None:
        with self._victim(act.chance) as slot:
            began_ns, pids = time.monotonic_ns(), frozenset(slot.runners())
            slot.worker.send(signal.SIGTERM)
            code = slot.worker.wait(STOP_S)
            if code:
                self.violations.append(f"a worker that was told to stop ended with {code}:\n{slot.worker.output}")
            self._note(act.kind, len(pids) * THREADS, began_ns, pids)
            self._see_to(slot)

    def _pause_worker(self, act: Act) -> None:
        with self._victim(act.chance) as slot:
            began_ns, pids = time.monotonic_ns(), slot.pids()
            slot.paused = True
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(act.lasts_s)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        slot.paused = False
        self._note(act.kind, 2 * slot.processes * (THREADS + AHEAD), began_ns, frozenset(pids))

    # --- lines ----------------------------------------------------------------------------------------------------

    def _reset_lines(self, act: Act) -> None:
        began_ns = time.monotonic_ns()
        self.stage.proxy.reset_all()
        self._note(act.kind, self._runners, began_ns)

    def _lose_request(self, act: Act) -> None:
        began_ns = time.monotonic_ns()
        self.stage.proxy.on(anything, LoseRequest(hang=act.chance < 0.3), skip=int(act.chance * 30))
        self._note(act.kind, 1, began_ns)

    def _lose_answer(self, act: Act) -> None:
        def lose(exchange: Exchange) -> None:
            jids = frozenset(found.decode() for found in JID.findall(exchange.forward()))
            now_ns = time.monotonic_ns()
            self.faults.append(Fault("lose answer", now_ns, now_ns, 1, jids=jids))
            if act.chance < 0.3:
                exchange.hang()
            exchange.cut()

        self.stage.proxy.on(is_claim, lose, skip=int(act.chance * 30))

    # --- the server -----------------------------------------------------------------------------------------------

    def _restart_server(self, act: Act) -> None:
        self._lasting_trouble(act, lambda: trouble.stopped(self.server, self.stage), self._cut())

    def _kill_server(self, act: Act) -> None:
        self._lasting_trouble(act, lambda: trouble.killed(self.server, self.stage), self._cut())

    def _fill_server(self, act: Act) -> None:
        self._lasting_trouble(act, lambda: trouble.full(self.server, self.stage), 0)

    def _demote_server(self, act: Act) -> None:
        self._lasting_trouble(act, lambda: trouble.readonly(self.server, self.stage), 0)

    def _busy_script(self, act: Act) -> None:
        self._lasting_trouble(act, lambda: trouble.busy(self.server, self.stage), 0)

    def _kill_clients(self, act: Act) -> None:
        began_ns = time.monotonic_ns()
        with contextlib.suppress(redis_py.RedisError):
            trouble.clients_killed(self.server, self.stage)()
        self._note(act.kind, self._runners, began_ns)

    def _flush_scripts(self, act: Act) -> None:
        began_ns = time.monotonic_ns()
        with contextlib.suppress(redis_py.RedisError):
            self.stage.redis.script_flush()
        self._note(act.kind, 0, began_ns)

    def _lasting_trouble(self, act: Act, begin: Callable[[], trouble.End], budget: int) -> None:
        began_ns = time.monotonic_ns()
        end = begin()
        time.sleep(act.lasts_s)
        self.stage.redis.connection_pool.disconnect()
        end()
        self._note(act.kind, budget, began_ns)

    def _cut(self) -> int:
        return THREADS * self._runners

    # --- slots ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _victim(self, chance: float) -> Iterator[Slot]:
        """A worker that is not paused; held meanwhile, so that no two attacks meet on it."""
        with self._mutex:
            old = time.monotonic() - BOOT_S
            free = [slot for slot in self.slots if not slot.paused and slot.worker.started_at < old]
            if not free:
                raise NobodyThere
            yield free[int(chance * len(free))]

    def _see_to(self, slot: Slot) -> None:
        """A worker that has ended is replaced."""
        if slot.worker.code is not None:
            slot.worker = self._start(slot.processes)

    def _replace_the_dead(self) -> None:
        """Of those that ended by themselves: at their start a server in trouble explains it, later nothing does."""
        with self._mutex:
            for slot in self.slots:
                code, output = slot.worker.code, slot.worker.output
                if code is None:
                    continue
                if code != 1 or "cannot be used" not in output:
                    self.violations.append(f"a worker ended by itself with {code}:\n{output[-2000:]}")
                self._see_to(slot)

    def _start(self, processes: int) -> WorkerProcess:
        flags = ["-p", str(processes)] if processes > 1 else []
        return self.stage.worker(concurrency=THREADS, queues=QUEUES, flags=flags, TIMEOUT=5)
