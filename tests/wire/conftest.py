"""Fixtures of the wire's room: a package that must never be imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import corpus

# A shared machine is slow now and then; that is no finding.
settings.register_profile("wurk", deadline=None)
settings.load_profile("wurk")


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a package on the path that leaves a mark when it is imported."""
    corpus.write_canary(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == corpus.CANARY]:
        del sys.modules[name]
