"""What crosses a fork, and what must not: sockets, locks, answers, database connections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.conftest import Fleets
from tests.support.processes import ROOT, WorkerProcess, eventually

pytestmark = pytest.mark.crash

FORKS = int(os.environ.get("FORKS") or 200)


@pytest.mark.oracle("safety:C8", "safety:S-66")
def test_forks_while_other_threads_hold_the_pools_locks_never_deadlock(redis_url: str) -> None:
    """FORKS=1000 asks for more of them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.connection.forking", redis_url, str(FORKS)],
        capture_output=True, text=True, timeout=150, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    children = found["children"]
    assert len(children) == FORKS + 1
    assert [child for child in children if child.get("error") or child["stuck"] or child["crossed"]] == []
    assert found["stuck"] == found["crossed"] == []
    assert found["parent went on"]


class Careless:
    """A fleet of the project that opens everything at import."""

    def __init__(self, stage: Fleets, count: int) -> None:
        environment = {
            **stage.environment(url=f"redis://127.0.0.1:{stage.proxy.upstream[1]}/0"),
            "DJANGO_SETTINGS_MODULE": "tests.fleet.careless.settings",
        }
        self.stage = stage
        self.process = WorkerProcess(environment, stage._output(), concurrency=3, flags=("--processes", str(count)))
        stage._processes.append(self.process)
        eventually(lambda: stage.redis.scard("processes") == count, 20, lambda: self.process.output)

    def reports(self, count: int) -> list[dict[str, Any]]:
        """What each child has open; jobs are pushed until every child has told."""

        def told() -> list[Path]:
            jid = self.stage.push("Sockets")
            eventually(lambda: jid in self.stage.ledger.jids("end"), 10, lambda: self.process.output)
            return list(self.stage.directory.glob("sockets-*.json"))

        eventually(lambda: len(told()) == count, 20, "word from every child")
        return [json.loads(path.read_text()) for path in told()]


def sockets_of(pid: int) -> set[str]:
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {link for link in links if link.startswith("socket:") or link.endswith("db.sqlite3")}


@pytest.mark.oracle("reliability:SW10", "safety:S-66", "safety:C8", "reports:P11")
def test_what_a_project_opens_at_import_is_shared_by_no_child(stage: Fleets) -> None:
    careless = Careless(stage, 4)

    reports = careless.reports(4)

    everybody = [set(report["sockets"]) for report in reports] + [
        {link for link in sockets_of(careless.process.pid) if link.startswith("socket:")}
    ]
    for index, mine in enumerate(everybody):
        for others in everybody[index + 1 :]:
            assert not mine & others, "a socket of two processes"
    assert sockets_of(careless.process.pid) & {"db.sqlite3"} == set()
    assert [report["files"] for report in reports] == [[]] * 4, "no child holds the database that the parent had opened"


@pytest.mark.oracle("reports:P11", "safety:C8")
def test_many_small_jobs_in_children_that_are_replaced_all_the_time_get_their_own_answers(stage: Fleets) -> None:
    careless = Careless(stage, 4)
    jids = set(stage.push_many("Ask", [[number] for number in range(10_000)]))

    def done() -> bool:
        careless.process.send(signal.SIGUSR1)
        return stage.ledger.jids("end") >= jids or bool(stage.redis.zcard("dead"))

    eventually(done, 60, lambda: careless.process.output)

    assert stage.redis.zcard("dead") == 0, stage.redis.zrange("dead", 0, 0)
    assert len({entry.pid for entry in stage.ledger.entries("end")}) > 4, "children were replaced meanwhile"
    careless.process.send(signal.SIGTERM)
    assert careless.process.wait() == 0
    for noise in ("Protocol", "crossed", "Traceback", "AssertionError"):
        assert noise not in careless.process.output
