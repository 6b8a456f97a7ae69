"""Apply each mutant to a copy of the package and run its crash points, which must fail.

python -m tests.mutants                     all of them
python -m tests.mutants --only 'no reaper'
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant, PatchDoesNotApply

ROOT = Path(__file__).parents[2]
FOUND = 1  # exit code of the enumerator: a point did not balance


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", action="append", choices=[one.name for one in MUTANTS], help="this mutant")
    parser.add_argument("--verbose", action="store_true", help="show what the points said")
    options = parser.parse_args(argv)
    wanted = [one for one in MUTANTS if not options.only or one.name in options.only]
    points = sorted({point for one in wanted for point in one.points})
    code, output = _run(None, points)
    if code:
        print(f"the package as it is fails at these points, so they prove nothing:\n{output}")
        return 1
    missed = 0
    for mutant in wanted:
        began = time.monotonic()
        try:
            code, output = _run(mutant, mutant.points)
        except PatchDoesNotApply as error:
            code, output = -1, str(error)
        verdict = "caught" if code == FOUND and "FAILED" in output else "missed" if code == 0 else "BROKEN"
        missed += verdict != "caught"
        print(f"{verdict:8}{mutant.name} ({time.monotonic() - began:.0f} s)", flush=True)
        if options.verbose or verdict == "BROKEN":
            print(output)
    print(f"{len(wanted) - missed} of {len(wanted)} mutants caught")
    return 1 if missed else 0


def _run(mutant: Mutant | None, points: Sequence[str]) -> tuple[int, str]:
    """Run points against a copy of the package; returns the exit code and what was printed."""
    with tempfile.TemporaryDirectory(prefix="wurk-mutant-") as name:
        directory = Path(name)
        shutil.copytree(ROOT / "wurk_django", directory / "wurk_django", ignore=shutil.ignore_patterns("__pycache__"))
        (directory / "tests").symlink_to(ROOT / "tests")
        if mutant is not None:
            mutant.apply(directory / "wurk_django")
        wanted = [part for point in points for part in ("--only", point)]
        command = [sys.executable, "-m", "tests.enumerator", "--lanes", "2", *wanted]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
