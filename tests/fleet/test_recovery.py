"""How fast the jobs of a killed child are back, measured: `-s` shows the figures."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time

import pytest

from tests.fleet.conftest import Fleets
from tests.support.processes import eventually

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("KILLS") or 5)


@pytest.mark.oracle("safety:G4", "safety:K25")
def test_jobs_of_killed_children_run_again_within_moments_whoever_is_killed(stage: Fleets) -> None:
    """KILLS=20 asks for more of them. G4: median ≤ 2 s, p99 ≤ 5 s."""
    no_row = {"fleet.slots.LONGEST_PAUSE_S": 1}  # every death comes after a short life
    fleet = stage.fleet(3, concurrency=1, constants=no_row)
    gone_s = []
    for _ in range(KILLS):
        fleet.wait_until(3)
        jid = stage.push("Long")
        eventually(lambda jid=jid: jid in stage.ledger.jids("start"), 10, "its start")
        victim = stage.pid_of(jid)
        time.sleep(random.uniform(0, 0.2))
        killed_at = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        eventually(lambda jid=jid: jid in stage.ledger.jids("end"), 10, lambda: fleet.output)
        [again] = stage.ledger.entries("start", jid=jid)[1:]
        gone_s.append((again.at_ns - killed_at) / 1e9)

    gone_s.sort()
    print(f"\nrunning again after: median {statistics.median(gone_s):.3f} s, worst of {KILLS} {gone_s[-1]:.3f} s")
    assert statistics.median(gone_s) <= 2
    assert gone_s[-1] <= 5


@pytest.mark.oracle("safety:K25")
def test_a_storm_of_kills_and_restarts_loses_nothing_and_repeats_only_what_ran(stage: Fleets) -> None:
    dice = random.Random(25)
    concurrency = 2
    quick = {"fleet.slots.FIRST_PAUSE_S": 0.1, "fleet.slots.LONGEST_PAUSE_S": 0.2}
    fleet = stage.fleet(3, concurrency=concurrency, constants=quick)
    jids = stage.push_many("Work", [[5]] * 1500)
    kills = 0
    while not stage.ledger.jids("end") >= set(jids) and kills < 20:
        time.sleep(dice.uniform(0.02, 0.3))
        if children := fleet.children:
            os.kill(dice.choice(children), signal.SIGKILL)
            kills += 1
        if dice.random() < 0.2:
            fleet.send(signal.SIGUSR1)

    stage.wait_until_done(jids, 30)

    repeats = sum(stage.ledger.starts().values()) - len(jids)
    print(f"\n{kills} kills, {repeats} repeats")
    assert repeats <= kills * concurrency
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
