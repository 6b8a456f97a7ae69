"""Runs one scenario at a time: lays it, plays it in a child with one fault on the way, recovers, reads the books."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.ledger import Ledger
from tests.enumerator import balance, points
from tests.enumerator.actor import DEADLINE_S, STUCK, Actor, rescue
from tests.enumerator.balance import Snapshot
from tests.enumerator.ground import Ground
from tests.enumerator.points import Point
from tests.enumerator.scenarios import SCENARIOS, Scenario
from tests.enumerator.zygote import Zygote
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.script import Script
from wurk_django.storage import leader, orphans, processes, queues, sorted_sets

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
SETTLE_S = 5.0
CHILD_S = DEADLINE_S + 12.0  # a stop may take its time on top; a child beyond that hangs


@dataclass(frozen=True)
class Verdict:
    """What came of one point. `reached`: the command was sent, so that the fault took place."""

    point: Point
    reached: bool
    complaints: tuple[str, ...]
    seconds: float
    repeats: int = 0


@dataclass(frozen=True)
class Recording:
    """What a scenario sends when nothing breaks, and what is wrong even so."""

    scenario: str
    names: tuple[str, ...]
    complaints: tuple[str, ...]


class Lab:
    """One Redis, one proxy before it, processes that fork the actors. One scenario at a time; close it in the end."""

    def __init__(self) -> None:
        self._zygotes = [Zygote(_play) for _ in range(2)]  # before anything here has a thread
        self._server = RedisServer().start()
        self._redis = self._server.client()
        self._proxy = Proxy(self._server.port)
        self._root = Path(tempfile.mkdtemp(prefix="wurk-points-"))

    def close(self) -> None:
        for zygote in self._zygotes:
            zygote.close()
        self._proxy.close()
        self._redis.close()
        self._server.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def record(self, name: str) -> Recording:
        """Play a scenario unbroken, and list its commands."""
        stage = self._stage(BY_NAME[name])
        found = stage.run(None)
        return Recording(name, tuple(stage.names), found.complaints)

    def run(self, point: Point) -> Verdict:
        """Play a scenario with one fault."""
        return self._stage(BY_NAME[point.scenario]).run(point)

    def _stage(self, scenario: Scenario) -> _Stage:
        directory = Path(tempfile.mkdtemp(dir=self._root))
        return _Stage(scenario, directory, self._redis, self._server, self._proxy, self._zygotes)


class _Stage:
    """One run of one scenario."""

    def __init__(
        self, scenario: Scenario, directory: Path, redis: Any, server: RedisServer, proxy: Proxy, zygotes: list[Zygote]
    ) -> None:
        self.scenario = scenario
        self.directory = directory
        self.ledger = Ledger(directory / "ledger")
        self._redis = redis
        self._server = server
        self._proxy = proxy
        self._victims, self._others = zygotes
        self.names: list[str] = []  # of the commands that the victim sent

    def run(self, point: Point | None) -> Verdict:
        began = time.monotonic()
        try:
            laid = self._lay()
            reached, code, explained = self._play(point, laid)
            found = explained.complaints
            if point is None or not point.kills or not reached:
                found += _exit_complaints(code)
            found += self._recover(laid)
            repeated = balance.repeats(self.ledger)
            found += balance.repeat_complaints(repeated, self._budget(point), explained.jids)
        finally:
            self._proxy.clear()
            shutil.rmtree(self.directory, ignore_errors=True)
        if point is None:
            return Verdict(Point(self.scenario.name, "", 0, ""), True, tuple(found), time.monotonic() - began)
        return Verdict(point, reached, tuple(found), time.monotonic() - began, repeated.total())

    def _lay(self) -> Collection[str]:
        self._redis.config_set("maxmemory", 0)
        self._redis.flushall()
        for module in (leader, orphans, processes, queues, sorted_sets):
            for value in vars(module).values():
                if isinstance(value, Script):
                    self._redis.script_load(value.source)  # else each first call would be two commands
        ground = Ground(self._redis)
        self.scenario.lay(ground)
        return ground.jids

    def _play(self, point: Point | None, laid: Collection[str]) -> tuple[bool, int, _Explained]:
        partner = self._start_partner() if self.scenario.partner else None
        pid = self._victims.fork(self._order(self._proxy.url))
        self._proxy.clear()
        rule = None
        if point is not None:
            act = points.action(point, lambda: pid)
            rule = self._proxy.on(points.predicate(point), act, skip=point.number - 1)
        self._victims.release()
        code = self._victims.wait(CHILD_S, pid)
        self._settle()
        if partner is not None:
            (self.directory / "enough").touch()
            self._others.wait(CHILD_S, partner)
        self._redis.config_set("maxmemory", 0)
        self.names = [name for name in map(points.Namer().name, list(self._proxy.commands)) if name]
        reached = rule is not None and rule.fired.is_set()
        return reached, code, self._look(point, reached, laid)

    def _look(self, point: Point | None, reached: bool, laid: Collection[str]) -> _Explained:
        """The books right after the fault; and after a kill, which jobs it held: only those may run again."""
        snapshot = Snapshot.take(self._redis)
        found = balance.complaints(snapshot, self.ledger, self._acknowledged(laid))
        if point is None or not point.kills or not reached or self.scenario.partner:
            return _Explained(found, None)  # a partner may have taken back by now what the dead one held
        started = {entry.jid for entry in self.ledger.entries("start")}
        repeated = set(balance.repeats(self.ledger))
        return _Explained(found, {jid for jid in started if snapshot.held(jid)} | repeated | self._excused())

    def _recover(self, laid: Collection[str]) -> list[str]:
        (self.directory / "calm").touch()
        found = []
        if balance.needs_rescue(self._redis):
            pid = self._others.fork(self._order(self._server.url, role="rescue"))
            self._others.release()
            code = self._others.wait(CHILD_S, pid)
            found += [f"recovery: {complaint}" for complaint in _exit_complaints(code)]
        snapshot = Snapshot.take(self._redis)
        found += balance.final_complaints(snapshot, self.ledger, self._acknowledged(laid))
        found += balance.death_complaints(snapshot, self.ledger, self.scenario.dead)
        errors = self.directory / "errors"
        if found and errors.exists():
            found.append("reported: " + " | ".join(errors.read_text().splitlines()[:6]))
        return found

    def _budget(self, point: Point | None) -> int:
        """What the fault may repeat (docs/spec/safety.md, after the fault matrix), and what the scenario explains."""
        if point is None:
            return self.scenario.excused
        if point.kills:
            return self.scenario.excused + self.scenario.threads + self._finished_unacknowledged
        unbooked = point.command in ("retry", "bury")  # a failure that Redis refuses to book stays and runs again
        return self.scenario.excused + (1 if point.loses or unbooked else 0)

    @property
    def _finished_unacknowledged(self) -> int:
        """w: the claim-ahead window, at most the jobs that had ended in the victim."""
        return len(self.ledger.jids("end"))

    def _excused(self) -> set[str]:
        return {entry.jid for entry in self.ledger.entries("start")} if self.scenario.excused else set()

    def _acknowledged(self, laid: Collection[str]) -> set[str]:
        return {*laid, *self.ledger.jids("acked")}

    def _start_partner(self) -> int:
        pid = self._others.fork(self._order(self._server.url, role="partner"))
        self._others.release()
        return pid

    def _order(self, url: str, role: str = "play") -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "role": role,
            "directory": str(self.directory),
            "url": url,
            "direct": self._server.url,
        }

    def _settle(self) -> None:
        """Wait until nothing that the victim sent is on its way to Redis."""
        deadline = time.monotonic() + SETTLE_S
        while self._proxy.lines() and time.monotonic() < deadline:
            time.sleep(0.001)


@dataclass(frozen=True)
class _Explained:
    """What the books said right after the fault; the jobs that may run again, or None for any."""

    complaints: list[str]
    jids: set[str] | None


def _exit_complaints(code: int) -> list[str]:
    if code == 0:
        return []
    if code == STUCK:
        return ["the living process did not get everything done by itself"]
    if code == -signal.SIGKILL:
        return ["the process hung and had to be killed"]
    return [f"the process ended with {code}"]


def _play(order: dict[str, Any]) -> int:
    """Runs in a child."""
    actor = Actor(Path(order["directory"]), order["url"], order["direct"])
    scenario = BY_NAME[order["scenario"]]
    roles = {"play": scenario.play, "partner": scenario.partner, "rescue": rescue}
    role = roles[order["role"]]
    assert role is not None
    watchdog = threading.Timer(CHILD_S - 1, lambda: os._exit(STUCK))
    watchdog.daemon = True
    watchdog.start()
    role(actor)
    return 0
