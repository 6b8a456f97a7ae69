from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.enumerator.points import Point
from tests.enumerator.scenarios import SCENARIOS
from tests.mutants.catalogue import MUTANTS, Mutant, PatchDoesNotApply

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that may be changed."""
    copy = tmp_path / "wurk_django"
    shutil.copytree(ROOT / "wurk_django", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_the_package_and_what_it_makes_is_python(mutant: Mutant, package: Path) -> None:
    before = (package / mutant.file).read_text()

    mutant.apply(package)

    after = (package / mutant.file).read_text()
    assert after != before
    if mutant.file.endswith(".py"):
        compile(after, mutant.file, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_names_points_of_scenarios_that_exist(mutant: Mutant) -> None:
    known = {scenario.name for scenario in SCENARIOS}

    assert mutant.points
    assert {Point.parse(text).scenario for text in mutant.points} <= known


def test_a_mutant_whose_code_is_gone_says_so(package: Path) -> None:
    gone = Mutant("gone", "keys.py", "what stands nowhere", "", ())

    with pytest.raises(PatchDoesNotApply, match="0 times"):
        gone.apply(package)
