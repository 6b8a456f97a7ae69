"""One storm from its start to its account."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.crash.harness import Stage
from tests.storm.account import Account, Books, read_producers
from tests.storm.nemesis import Nemesis
from tests.storm.plan import make_plan
from tests.support.processes import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

LAYOUT = (1, 1, 2)  # two lone workers and a fleet of two
PRODUCERS = 2
QUIET_S = 60.0  # until everything is done once the faults are over


def run(seed: int, seconds: float, rate: float, directory: Path) -> tuple[str, list[str]]:
    """Returns the report and what is wrong."""
    with RedisServer(append_only=True) as server, Proxy(server.port) as proxy, server.client() as client:
        stage = Stage(client, proxy, directory)
        try:
            return _storm(stage, server, seed, seconds, rate)
        finally:
            stage.close()


def _storm(stage: Stage, server: RedisServer, seed: int, seconds: float, rate: float) -> tuple[str, list[str]]:
    nemesis = Nemesis(stage, server, LAYOUT)
    for slot in nemesis.slots:
        eventually(lambda slot=slot: slot.runners(), 20, "a worker")
    paths = [stage.directory / f"producer-{number}" for number in range(PRODUCERS)]
    producers = [
        stage.python("-m", "tests.storm.producer", stage.proxy.url, str(path), str(seed), str(rate)) for path in paths
    ]
    nemesis.carry_out(make_plan(seed, seconds))
    for producer in producers:
        producer.send(signal.SIGTERM)
        producer.wait(30)
    nemesis.make_peace()
    stage.redis.connection_pool.disconnect()
    violations = list(nemesis.violations)
    quiet_at = time.monotonic()
    try:
        eventually(lambda: _is_quiet(stage), QUIET_S, "the end of all jobs")
    except AssertionError as late:
        violations.append(str(late))
    quiet_s = time.monotonic() - quiet_at
    produced, acked = read_producers(paths)
    codes = nemesis.stop_workers()
    if any(codes):
        violations.append(f"workers ended with {codes} at the end")
    books = Books(
        produced,
        acked,
        stage.ledger.entries(),
        nemesis.faults,
        frozenset(jid for jid, places in stage.places().items() if any(place.key != "dead" for place in places)),
        frozenset(stage.dead()),
    )
    account = Account(books)
    try:
        stage.check_keys()
    except AssertionError as wrong:
        violations.append(str(wrong))
    return f"{account.report()}\nquiet     {quiet_s:.1f} s after the last fault", violations + account.violations()


def _is_quiet(stage: Stage) -> bool:
    held = any(True for _ in stage.redis.scan_iter("queue:*", _type="list"))
    return not held and not stage.redis.zcard("retry") and not stage.redis.zcard("schedule")
