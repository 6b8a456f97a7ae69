"""How the figures are shown: a Markdown table, a JSON file, and the page of the documentation."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.arena import Arena
from bench.contestants import CONTESTANTS
from bench.results import Outcome, Row, shown

LIBRARIES = ("Django", "redis", "hiredis")

PAGE = """# Benchmarks

Written by `make bench` (`python -m bench.run --write-docs`); do not edit. All contestants run in turns on one machine,
on the same Redis over TCP loopback with nothing kept on disk, so read the ratios, not the absolute figures.
Jobs take an integer and a short string. One process, ten threads, logging from WARNING up; RQ, which has no threads,
forks for each job. wurk-django runs with its reliable fetch and its default middleware; Dramatiq, Taskiq (streams) and
Celery acknowledge after the job; Sidekiq's fetch is the basic one and Huey has none that survives a kill.
Figures are medians of {rounds} rounds, latencies are percentiles of all rounds pooled.

{machine}

{table}
"""


@dataclass(frozen=True)
class Run:
    """All that one run of the benchmark found, and where."""

    rounds: int
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    outcomes: Mapping[str, Outcome]

    @property
    def rows(self) -> Sequence[Row]:
        """Of all measures, in order."""
        return [row for outcome in self.outcomes.values() for row in outcome.rows]

    def as_json(self) -> dict[str, Any]:
        """Everything, samples too."""
        return {
            "rounds": self.rounds,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "rows": [{**asdict(row), "verdict": row.verdict} for row in self.rows],
            "samples": {name: outcome.rounds.samples for name, outcome in self.outcomes.items()},
            "failures": {name: outcome.rounds.failures for name, outcome in self.outcomes.items()},
        }

    def as_page(self) -> str:
        """The page of the documentation."""
        facts = {**self.machine, **self.versions}
        machine = "\n".join(f"- {name}: {value}" for name, value in facts.items())
        return PAGE.format(rounds=self.rounds, machine=machine, table=self.as_table())

    def as_table(self) -> str:
        """The rows as Markdown, and below them why figures are missing."""
        lines = ["| Measure | wurk-django | against | figure | target | |", "|---|---:|---:|---:|---:|---|"]
        lines += [_line(row) for row in self.rows]
        failures = [
            f"- n/a in {measure}: {name}: {reason}"
            for measure, outcome in self.outcomes.items()
            for name, reason in outcome.rounds.failures.items()
        ]
        return "\n".join([*lines, *([""] if failures else []), *failures])


def _line(row: Row) -> str:
    figure = "n/a" if row.figure is None else f"{row.figure:.2f}{row.unit}"
    target = row.target.text if row.target else "–"
    return f"| {row.what} | {row.ours} | {row.theirs} | {figure} | {target} | {row.verdict} |"


def machine() -> dict[str, str]:
    """What the figures depend on, without naming the host."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{_first('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores",
        "memory": shown(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, "GiB"),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions(arena: Arena) -> dict[str, str]:
    """The server's, the interpreter's, and those of all contestants and what they share."""
    info = arena.info("server")
    valkey = info.get("valkey_version")
    found = {"server": f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"}
    found["Python"] = ".".join(str(part) for part in sys.version_info[:3])
    for contestant in CONTESTANTS:
        try:
            found[contestant.name] = contestant.version()
        except (PackageNotFoundError, RuntimeError, OSError) as error:
            found[contestant.name] = f"not installed ({error})"
    for library in LIBRARIES:
        found[library] = version(library)
    return found


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return "unknown processor"
