"""The stage of the crash tests. One test at a time: they need both cores for their deadlines."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.crash.harness import Stage
from tests.support.proxy import Proxy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("crash"))


@pytest.fixture
def stage(redis: redis_py.Redis, proxy: Proxy, tmp_path: Path) -> Iterator[Stage]:
    """Redis, empty; a proxy before it; workers and jobs by name."""
    stage = Stage(redis, proxy, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def dice() -> random.Random:
    """Chance that can be had again: CRASH_SEED takes the number that a failed run has printed."""
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(1 << 32))
    print(f"CRASH_SEED={seed}")
    return random.Random(seed)
