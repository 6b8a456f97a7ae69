"""A fleet of real processes, its children by pid, and the jobs it was given."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.crash.harness import Stage
from tests.fleet.world import World
from tests.support.processes import PythonProcess, eventually
from tests.support.proxy import Proxy

WAIT_S = 20.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("fleet"))  # one at a time: several processes each


def children_of(pid: int, *, zombies: bool = False) -> list[int]:
    """The living children of a process, or its zombies, in the order of their pids."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and (state == "Z") == zombies:
                found.append(int(path.parent.name))
    return sorted(found)


def is_there(pid: int) -> bool:
    """Does the process live? A zombie does not."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Fleet:
    """A parent that was started, and its children."""

    def __init__(self, process: PythonProcess, redis: redis_py.Redis) -> None:
        self.process = process
        self.redis = redis
        self.pid = process.pid  # of the parent of the fleet; another one when something else has started it

    @property
    def output(self) -> str:
        return self.process.output

    @property
    def children(self) -> list[int]:
        return children_of(self.pid)

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def beating(self) -> dict[int, str]:
        """The children with a heartbeat, and their identities."""
        mine = set(self.children)
        members = [member.decode() for member in self.redis.smembers("processes")]
        return {
            int(member.split(":")[-2]): member
            for member in members
            if int(member.split(":")[-2]) in mine and self.redis.hexists(member, "info")
        }

    def threads(self, pid: int) -> int:
        """How many threads a child says it has."""
        return int(self.redis.hget(self.beating()[pid], "concurrency") or 0)

    def queues(self, pid: int) -> list[str]:
        """The queues that a child says it serves."""
        return list(json.loads(self.redis.hget(self.beating()[pid], "info") or b"{}")["queues"])

    def wait_until(self, count: int, timeout_s: float = WAIT_S) -> list[int]:
        """Wait until exactly so many children beat, and no other is there; returns their pids."""

        def look() -> bool:
            assert self.process.code is None, f"the fleet ended with {self.process.code}:\n{self.output}"
            return len(self.beating()) == count == len(self.children)

        eventually(look, timeout_s, lambda: f"{count} children that beat, not {self.beating()}:\n{self.output}")
        return self.children

    def says(self, text: str, timeout_s: float = WAIT_S) -> None:
        eventually(lambda: text in self.output, timeout_s, lambda: f"{text!r} in\n{self.output}")

    def wait(self, timeout_s: float = WAIT_S) -> int:
        return self.process.wait(timeout_s)


class Fleets(Stage):
    """The stage of the crash tests, where fleets play."""

    def start(
        self,
        *,
        url: str | None = None,
        wrapped: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **told: Any,
    ) -> Fleet:
        """Start a fleet; `told` goes to `program.py`. `wrapped`: the program that starts it, with its arguments."""
        arguments = ["-m", "tests.fleet.program"]
        if wrapped:
            arguments = ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *wrapped]
        variables = {
            "CRASH_DIR": str(self.directory),
            "FLEET": json.dumps({"url": url or f"redis://127.0.0.1:{self.proxy.upstream[1]}/0", **told}),
            **(environment or {}),
        }
        process = PythonProcess(arguments, variables, self._output())
        self._processes.append(process)
        return Fleet(process, self.redis)

    def fleet(self, count: int = 2, **told: Any) -> Fleet:
        """Start a fleet and wait until all of it works."""
        fleet = self.start(count=count, **told)
        fleet.wait_until(count)
        return fleet

    def hold(self, count: int) -> list[str]:
        """Jobs that run until the gate "go" is opened; all of them have started."""
        jids = [self.push("Hold", "go") for _ in range(count)]
        eventually(lambda: self.ledger.jids("start") >= set(jids), WAIT_S, "the start of the jobs")
        return jids

    def pid_of(self, jid: str) -> int:
        """The process in which the last run of a job started."""
        return self.ledger.entries("start", jid=jid)[-1].pid


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Makes worlds for supervisors: see `world.py`."""
    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def stage(redis: redis_py.Redis, proxy: Proxy, tmp_path: Path) -> Iterator[Fleets]:
    """Redis, empty; a proxy before it; fleets and jobs by name. Every process ends with the test."""
    stage = Fleets(redis, proxy, tmp_path)
    yield stage
    for process in stage._processes:
        children = children_of(process.pid)
        left = [*children, *(inner for child in children for inner in children_of(child))]
        process.kill()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
    stage.close()
