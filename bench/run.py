"""The benchmark's one command: `python -m bench.run`. Sets up what it needs, measures, prints a table, writes JSON.

Exit code 0 means that everything of ours ran, whatever the ratios are; 1 that something of ours did not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench import environment

if TYPE_CHECKING:
    from bench.arena import Arena
    from bench.report import Run
    from bench.results import Outcome

ROUNDS = 5
QUICK_ROUNDS = 3
RESULTS = environment.ROOT / "build" / "bench.json"
PAGE = environment.ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Parse, set up, measure, show."""
    options = _parser().parse_args()
    environment.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a stop from outside ends what was started, too

    from bench.measures import MEASURES
    from bench.measures.drain import drain_against_sidekiq

    chosen = {"drain": drain_against_sidekiq} if options.quick else MEASURES
    if options.only:
        unknown = sorted(set(options.only) - set(MEASURES))
        if unknown:
            sys.exit(f"No measure is called {', '.join(unknown)}; there are {', '.join(MEASURES)}.")
        chosen = {name: MEASURES[name] for name in MEASURES if name in options.only}
    run = measure(chosen, options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS))
    show(run, options.json, PAGE if options.write_docs else None)
    return 1 if ours_failed(run) else 0


def measure(chosen: Mapping[str, Callable[[Arena, int], Outcome]], rounds: int) -> Run:
    """Run the measures one after the other on a server of their own."""
    from bench import report
    from bench.arena import Arena
    from bench.server import redis_server

    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="wurk-bench-") as folder, redis_server(Path(folder)) as url:
        arena = Arena(url, Path(folder))
        arena.calibrate()
        for name, take in chosen.items():
            begin = time.monotonic()
            print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
            outcomes[name] = take(arena, rounds)
            print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
        return report.Run(rounds, report.machine(), report.versions(arena), outcomes)


def show(run: Run, results: Path, page: Path | None) -> None:
    """Print the table, write the files."""
    print(run.as_table())
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(run.as_json(), indent=1, ensure_ascii=False) + "\n")
    if page:
        page.parent.mkdir(exist_ok=True)
        page.write_text(run.as_page())


def ours_failed(run: Run) -> bool:
    """Whether a row has no figure for a reason of ours."""
    from bench.contestants import WURK

    reasons = [name for outcome in run.outcomes.values() for name in outcome.rounds.failures]
    return any(name.startswith(WURK.name) for name in reasons)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Measure wurk-django beside its peers.")
    parser.add_argument("--quick", action="store_true", help="the no-op drain against Sidekiq alone, three rounds")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this measure alone; repeatable")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds of each measure (default {ROUNDS})")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="default: build/bench.json")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
