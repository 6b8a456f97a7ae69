"""Run crash points: all of them, a share chosen by a seed, or some by name.

python -m tests.enumerator                          every point
python -m tests.enumerator --share 500 --seed 7     another 500 with each seed
python -m tests.enumerator --only 'run-one/dispatch:claim#1/kill-after' --repeat 10
"""

from __future__ import annotations

import argparse
import atexit
import random
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.enumerator.lab import Lab, Recording, Verdict
from tests.enumerator.points import Point, points_of
from tests.enumerator.scenarios import SCENARIOS

LANES = 6  # of which most wait for something, on two cores


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    began = time.monotonic()
    wanted = [one.name for one in SCENARIOS if options.scenario in (None, one.name)]
    failures: list[str] = []
    with ProcessPoolExecutor(options.lanes, get_context("fork"), _open_lab) as pool:
        if options.only:
            points = [Point.parse(text) for text in options.only] * options.repeat
        else:
            recordings = list(pool.map(_record, wanted))
            failures += [f"{one.scenario}, unbroken: {text}" for one in recordings for text in one.complaints]
            points = _choose(recordings, options)
            print("\n".join(failures) or "unbroken, every scenario balances")
            print(
                f"{len(recordings)} scenarios, {options.total} points, of which {len(points)} run: seed {options.seed}"
            )
        if options.list:
            print("\n".join(map(str, points)))
            return 0
        reached = 0
        slowest: list[Verdict] = []
        for verdict in _tell(pool.map(_run, points), len(points)):
            reached += verdict.reached
            slowest = sorted([*slowest, verdict], key=lambda one: -one.seconds)[:5]
            if verdict.complaints:
                failures.append(_describe(verdict))
                print(failures[-1], flush=True)
    for verdict in slowest if options.slowest else ():
        print(f"{verdict.seconds:6.2f} s  {verdict.point}")
    seconds = time.monotonic() - began
    print(f"{len(points)} points, {reached} reached, {len(failures)} failures, {seconds:.0f} s, seed {options.seed}")
    return 1 if failures else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.enumerator", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--share", type=int, help="run so many points, chosen by the seed")
    parser.add_argument("--seed", type=int, help="the same seed chooses the same points; printed")
    parser.add_argument("--scenario", choices=[one.name for one in SCENARIOS], help="only the points of this one")
    parser.add_argument("--only", action="append", metavar="POINT", help="run this point, as a failure names it")
    parser.add_argument("--repeat", type=int, default=1, help="run each point of --only so many times")
    parser.add_argument("--lanes", type=int, default=LANES, help="points at a time (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="list the points that would run")
    parser.add_argument("--slowest", action="store_true", help="say which points took longest")
    options = parser.parse_args(argv)
    if options.seed is None:
        options.seed = random.randrange(1 << 32)
    return options


def _choose(recordings: Iterable[Recording], options: argparse.Namespace) -> list[Point]:
    points = [point for recording in recordings for point in points_of(recording.scenario, recording.names)]
    options.total = len(points)
    dice = random.Random(options.seed)
    if options.share is None or options.share >= len(points):
        dice.shuffle(points)  # points of one scenario are alike: spread them over the lanes
        return points
    return dice.sample(sorted(points, key=str), options.share)


def _tell(verdicts: Iterable[Verdict], total: int) -> Iterable[Verdict]:
    told_at = time.monotonic()
    for done, verdict in enumerate(verdicts, 1):
        yield verdict
        if time.monotonic() - told_at > 15:
            told_at = time.monotonic()
            print(f"{done} of {total}", flush=True)


def _describe(verdict: Verdict) -> str:
    lines = [f"FAILED {verdict.point}", *(f"    {text}" for text in verdict.complaints)]
    lines.append(f"    again: make crash ARGS=\"--only '{verdict.point}'\"")
    return "\n".join(lines)


_labs: list[Lab] = []


def _open_lab() -> None:
    _labs.append(Lab())
    atexit.register(_labs[0].close)


def _record(name: str) -> Recording:
    return _labs[0].record(name)


def _run(point: Point) -> Verdict:
    return _labs[0].run(point)


if __name__ == "__main__":
    sys.exit(main())
