"""`manage.py wurk status`: who works, what waits."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import clock
from ..config import Config
from ..storage import leader, processes, queues, sorted_sets, stats

STALE_S = 30.0  # a process whose last beat is older is in trouble, if its clock is right


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def run(config: Config, options: Mapping[str, Any], write: Callable[[str], object]) -> int:
    """Print the state of the fleet; exit code 0, also when nothing runs."""
    found = collect(config)
    write(json.dumps(found, ensure_ascii=False) if options["json"] else render(found))
    return 0


def collect(config: Config) -> dict[str, Any]:
    """The state of the fleet as plain values."""
    redis, now_s = config.redis, clock.now_s()
    processed, failed = stats.totals(redis)
    return {
        "processed": processed,
        "failed": failed,
        "leader": leader.current(redis, config.options.leader_key),
        "processes": [
            {
                "identity": process.identity,
                "tag": process.info.get("tag", ""),
                "queues": process.queues,
                "busy": process.busy,
                "concurrency": process.concurrency,
                "rss_kb": process.rss_kb,
                "beat_age_s": round(max(now_s - process.beat, 0.0), 1),
                "quiet": process.quiet,
            }
            for process in processes.all_processes(redis)
        ],
        "queues": [
            {"name": queue.name, "size": queue.size, "latency_s": round(queue.latency_s, 1), "paused": queue.paused}
            for queue in sorted(queues.summaries(redis), key=lambda queue: -queue.size)
        ],
        "sets": sorted_sets.sizes(redis),
    }


def render(found: Mapping[str, Any]) -> str:
    """The same as tables."""
    rows = [
        [process["identity"], f"{process['busy']}/{process['concurrency']}", f"{process['rss_kb'] // 1024} MB",
         f"{process['beat_age_s']} s ago", _state(process, found["leader"]), ", ".join(process["queues"])]
        for process in found["processes"]
    ]  # fmt: skip
    waiting = [
        [queue["name"], str(queue["size"]), f"{queue['latency_s']} s", "paused" if queue["paused"] else ""]
        for queue in found["queues"]
    ]
    sets = [[name, str(size)] for name, size in found["sets"].items()]
    return "\n\n".join(
        [
            table(["process", "busy", "memory", "beat", "state", "queues"], rows) if rows else "No process runs.",
            table(["queue", "jobs", "latency", ""], waiting) if waiting else "No queue is known.",
            table(["set", "jobs"], sets),
            f"processed {found['processed']}, failed {found['failed']}",
        ]
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell. What a terminal would obey is shown as a question mark."""
    lines = [[_printable(cell) for cell in line] for line in (heads, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _state(process: Mapping[str, Any], leader_identity: str) -> str:
    words = [
        "leader" if process["identity"] == leader_identity else "",
        "quiet" if process["quiet"] else "",
        "stale" if process["beat_age_s"] > STALE_S else "",
    ]
    return " ".join(filter(None, words))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
