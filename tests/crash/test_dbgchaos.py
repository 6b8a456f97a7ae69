"""Everything at once: workers that come, go and die, lines that break, jobs of every kind on weighted queues."""

from __future__ import annotations

import signal
import time
from collections import Counter
from random import Random

import pytest

from tests.crash.harness import Stage
from tests.support.faults import LoseReply, LoseRequest, anything
from tests.support.processes import WorkerProcess

pytestmark = pytest.mark.crash

THREADS = 4
AHEAD = 100  # jobs without work that may be started and unacknowledged beside those that run
DURATION_S = 30.0
QUEUES = ["high,3", "default,2", "low,1"]


def test_nothing_is_lost_whatever_happens_to_workers_and_their_lines(stage: Stage, dice: Random) -> None:
    def start() -> WorkerProcess:
        return stage.worker(concurrency=THREADS, queues=QUEUES, TIMEOUT=dice.choice([0.1, 1]))

    def push() -> None:
        queue = dice.choice(["high", "default", "low"])
        kind = dice.choice(["Work", "Work", "Flaky", "Doomed", "Dropped"])
        options = {"Doomed": {"retry": 0}, "Dropped": {"retry": False}}.get(kind, {})
        count = dice.choice([1, 30, 150])
        args = [[dice.choice([0, 0, 1, 10])] for _ in range(count)] if kind in ("Work", "Flaky") else [[]] * count
        if dice.random() < 0.3:
            options = {**options, "at": time.time() + dice.random() * 3}
        pushed[kind] += stage.push_many(kind, args, queue=queue, **options)

    pushed: dict[str, list[str]] = {kind: [] for kind in ("Work", "Flaky", "Doomed", "Dropped")}
    workers = [start(), start(), start()]
    frozen = {}
    did: Counter[str] = Counter()
    end = time.monotonic() + DURATION_S
    while time.monotonic() < end:
        push()
        for v, t in list(frozen.items()):
            if time.monotonic() > t:
                v.send(signal.SIGCONT); del frozen[v]
        time.sleep(dice.random() * 0.4)
        act = dice.choice(["kill", "stop", "reset", "lose request", "lose answer", "freeze","nothing"])
        did[act] += 1
        if act in ("kill", "stop"):
            victim = workers.pop(dice.randrange(len(workers)))
            victim.send(signal.SIGKILL if act == "kill" else signal.SIGTERM)
            workers.append(start())
        elif act == "freeze":
            v = dice.choice(workers)
            if v.code is None and v not in frozen:
                v.send(signal.SIGSTOP); frozen[v] = time.monotonic() + dice.random()*6
        elif act == "reset":
            stage.proxy.reset_all()
        elif act == "lose request":
            stage.proxy.on(anything, LoseRequest(), skip=dice.randrange(30))
        elif act == "lose answer":
            stage.proxy.on(anything, LoseReply(hang=dice.random() < 0.3), skip=dice.randrange(30))
    stage.proxy.clear()
    for v in frozen: v.send(signal.SIGCONT)

    every = [jid for jids in pushed.values() for jid in jids]
    stage.wait_until_done([jid for kind in ("Work", "Flaky", "Doomed") for jid in pushed[kind]], 30)

    print(did, len(every), "jobs")
    assert stage.dead() == set(pushed["Doomed"])
    assert stage.ledger.jids("death") == {*pushed["Doomed"], *pushed["Dropped"]}
    assert stage.ledger.jids("start") == set(every)
    repeats = sum(count - 1 for count in stage.ledger.starts().values())
    print(repeats, "repeats")
    assert repeats <= (did["kill"] + did["stop"]) * THREADS + did["kill"] * AHEAD
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    stage.check_keys()
