"""`python -m tests.storm`: one storm and its account. Exit code 1 on any violation, with the way to have it again."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.storm.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="make storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the enemy's plan and the jobs; drawn when not given")
    parser.add_argument("--seconds", type=float, default=120, help="how long it lasts")
    parser.add_argument("--rate", type=float, default=60, help="jobs a second of each of the two producers, at most")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"storm: seed {seed}, {arguments.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="wurk-storm-") as directory:
        report, violations = run(seed, arguments.seconds, arguments.rate, Path(directory))
    print(report)
    for violation in violations:
        print("VIOLATION", violation)
    if violations:
        print(f"again: make storm SEED={seed} SECONDS={arguments.seconds:g}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
