"""A short storm in the suite; `make storm` runs long ones."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.storm.run import run

SECONDS = 25.0


@pytest.mark.crash
@pytest.mark.oracle("safety:G3", "safety:G5", "safety:G7", "safety:G16")
def test_a_storm_loses_nothing_and_repeats_no_more_than_its_faults_explain(tmp_path: Path) -> None:
    seed = int(os.environ.get("STORM_SEED") or random.randrange(1 << 32))
    print(f"STORM_SEED={seed}")

    report, violations = run(seed, SECONDS, 60, tmp_path)

    print(report)
    assert not violations, "\n".join([*violations, report, f"again: make storm SEED={seed} SECONDS={SECONDS:g}"])
