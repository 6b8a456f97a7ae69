"""A supervisor in a world of our own making: its clock, its children and what Redis says are the test's to decide."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NoReturn

from wurk_django.config import Config, Options
from wurk_django.worker.fleet.lookout import Answer, Beats, Buried, Lookout
from wurk_django.worker.fleet.slots import Child
from wurk_django.worker.fleet.supervisor import Supervisor
from wurk_django.worker.fleet.system import System

TICK_S = 0.2


class PaperSystem(System):
    """Children on paper. `ends` says with which code a child ends at which time, `obedient` what a TERM does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.forks: list[tuple[float, int]] = []
        self.signals: list[tuple[float, int, int]] = []
        self.ends: dict[int, tuple[float, int]] = {}
        self.sizes: dict[int, int] = {}
        self.may_fork = True
        self.obedient = True

    @property
    def pid(self) -> int:
        return 1000

    def warm_up(self) -> None: ...

    def fork(self, live: Callable[[], NoReturn]) -> int:
        if not self.may_fork:
            raise BlockingIOError("no more processes")
        pid = 1001 + len(self.forks)
        self.forks.append((self.world.now, pid))
        self.world.born(pid)
        return pid

    def send(self, pid: int, signum: int) -> None:
        self.signals.append((self.world.now, pid, signum))
        if signum == signal.SIGKILL or (signum == signal.SIGTERM and self.obedient):
            self.ends.setdefault(pid, (self.world.now, 0 if signum == signal.SIGTERM else -signum))

    def reap(self, pid: int) -> int | None:
        at, code = self.ends.get(pid, (float("inf"), 0))
        return code if at <= self.world.now else None

    def resident_bytes(self, pid: int) -> int | None:
        return self.sizes.get(pid)

    def reap_strays(self, known: frozenset[int]) -> list[int]:
        return []


class PaperLookout(Lookout):
    """Answers at once, from what the world knows of hearts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.buried: list[int] = []
        self._waiting: list[Answer] = []

    @property
    def busy(self) -> bool:
        return False

    @property
    def burying(self) -> bool:
        return False

    def answers(self) -> list[Answer]:
        found, self._waiting = self._waiting, []
        return found

    def look(self, pids: object) -> None:
        self._waiting.append(Beats({pid: self.world.beat_of(pid) for pid in pids} if self.world.redis_is_up else None))

    def bury(self, child: Child) -> None:
        self.buried.append(child.pid)
        self._waiting.append(Buried(child, not self.world.dumb(child.pid)))

    def forget(self, pid: int) -> None: ...

    def work_off(self) -> None: ...

    def finish(self, timeout_s: float) -> None: ...

    def close(self) -> None: ...


class World:
    """Time passes by `run`; everything else is set by the test. Children beat from the start unless they are `dumb`."""

    def __init__(self, count: int = 1, *, burst: bool = False, **options: object) -> None:
        self.now = 100.0
        self.redis_is_up = True
        self.stalled: set[int] = set()
        self.fate: Callable[[int, float], tuple[float, int] | None] = lambda _pid, _now: None
        self.dumb: Callable[[int], bool] = lambda _pid: False
        self.over = False
        self.system = PaperSystem(self)
        self.lookout = PaperLookout(self)
        config = Config(Options(**{"timeout": 25, **options}))  # type: ignore[arg-type]
        config.capsule("default", ["default"], 1)
        self.fleet = Supervisor(
            [config] * count,
            burst=burst,
            system=lambda _signals: self.system,
            lookout=lambda _config: self.lookout,
            clock=lambda: self.now,
        )

    def close(self) -> None:
        self.fleet.signals.restore()

    def born(self, pid: int) -> None:
        """A child starts; `fate` says when it ends, if the test has set one."""
        end = self.fate(pid, self.now)
        if end is not None:
            self.system.ends[pid] = end

    def beat_of(self, pid: int) -> bytes | None:
        if self.dumb(pid):
            return None
        return b"still" if pid in self.stalled else str(self.now).encode()

    def run(self, seconds: float) -> bool:
        """Let time pass, tick by tick; True when the fleet has ended."""
        until = self.now + seconds
        while not self.over and self.now < until - 1e-9:
            self.over = self.fleet.tick()
            self.now = round(self.now + TICK_S, 6)
        return self.over

    def say(self, name: str) -> None:
        """A signal comes."""
        self.fleet.act(name)

    def die(self, pid: int, code: int = -9) -> None:
        self.system.ends[pid] = (self.now, code)

    @property
    def alive(self) -> list[int]:
        return sorted(self.fleet.children)

    @property
    def fork_times(self) -> list[float]:
        """When each child came, from the start of the world."""
        return [round(at - 100.0, 3) for at, _pid in self.system.forks]

    def sent(self, signum: int, pid: int | None = None) -> list[float]:
        """When a signal was sent, from the start of the world."""
        return [round(at - 100.0, 3) for at, to, what in self.system.signals if what == signum and pid in (None, to)]
