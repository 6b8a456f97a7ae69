"""Numbers as Prometheus reads them: text exposition format 0.0.4.

Series of the fleet are the same on every process, so whoever adds up processes takes their `max`, never their `sum`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import keys
from ..storage.processes import Process
from ..storage.queues import Summary
from ..version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_QUEUES = 1000  # with a series of their own
OTHER = "_other"  # the queues beyond, added up

SIZES = {keys.SCHEDULE: "wurk_scheduled_size", keys.RETRY: "wurk_retry_size", keys.DEAD: "wurk_dead_size"}

Labels = Sequence[tuple[str, str]]
Sample = tuple[Labels, float]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Own:
    """One process as it knows itself, or as its last beat told."""

    pid: int
    busy: int
    concurrency: int
    rss_bytes: int
    beat_age_s: float
    quiet: bool


@dataclass(frozen=True)
class Fleet:
    """Everything that Redis tells about the whole."""

    processed: int
    failed: int
    sizes: dict[str, int] = field(default_factory=dict)  # of schedule, retry and dead
    queues: Sequence[Summary] = ()
    processes: Sequence[Process] = ()


def render(fleet: Fleet | None, tree: Sequence[Own], expected: int, fresh: int | None) -> str:
    """All series. `fleet` is None while Redis cannot be asked: its series are absent then, not 0.

    `tree`: the processes under the same parent as this one. `fresh` of the `expected` have beaten lately.
    """
    lines = [
        *_series("wurk_build_info", "gauge", "The version of this worker.", [([("version", VERSION)], 1)]),
        *_series("wurk_redis_up", "gauge", "1 when Redis answers.", [((), fleet is not None)]),
        *_series("wurk_swarm_children_expected", "gauge", "Processes of this fleet.", [((), expected)]),
    ]
    if fresh is not None:
        lines += _series("wurk_swarm_children_fresh", "gauge", "Those with a fresh heartbeat.", [((), fresh)])
    if fleet is not None:
        lines += _fleet_lines(fleet)
    lines += _tree_lines(tree)
    return "".join(f"{line}\n" for line in lines)


def _fleet_lines(fleet: Fleet) -> Iterable[str]:
    yield from _series("wurk_processed_total", "counter", "Jobs that were run.", [((), fleet.processed)])
    yield from _series("wurk_failed_total", "counter", "Runs that failed.", [((), fleet.failed)])
    shown, rest = fleet.queues[:MAX_QUEUES], fleet.queues[MAX_QUEUES:]
    sizes: list[Sample] = [([("queue", queue.name)], queue.size) for queue in shown]
    if rest:
        sizes.append(([("queue", OTHER)], sum(queue.size for queue in rest)))
    ages: list[Sample] = [([("queue", queue.name)], queue.latency_s) for queue in shown]
    yield from _series("wurk_queue_size", "gauge", "Jobs that wait.", sizes)
    yield from _series("wurk_queue_latency_seconds", "gauge", "Age of the job that waited longest.", ages)
    for name, series in SIZES.items():
        yield from _series(series, "gauge", f"Jobs in the {name} set.", [((), fleet.sizes.get(name, 0))])
    yield from _series("wurk_processes", "gauge", "Processes with a heartbeat.", [((), len(fleet.processes))])
    yield from _series("wurk_busy", "gauge", "Jobs that run.", [((), sum(each.busy for each in fleet.processes))])
    threads = sum(each.concurrency for each in fleet.processes)
    yield from _series("wurk_concurrency", "gauge", "Threads for jobs.", [((), threads)])


def _tree_lines(tree: Sequence[Own]) -> Iterable[str]:
    def each(name: str, text: str, values: Iterable[float]) -> Iterable[str]:
        samples = [([("pid", str(own.pid))], value) for own, value in zip(tree, values, strict=True)]
        return _series(f"wurk_process_{name}", "gauge", text, samples)

    yield from each("busy", "Jobs that run in this process.", [own.busy for own in tree])
    yield from each("concurrency", "Threads of this process.", [own.concurrency for own in tree])
    yield from each("rss_bytes", "Resident memory.", [own.rss_bytes for own in tree])
    yield from each("heartbeat_age_seconds", "Time since the last beat.", [own.beat_age_s for own in tree])
    yield from each("quiet", "1 when it takes no more jobs.", [own.quiet for own in tree])


def _series(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        inner = ",".join(f'{key}="{label.translate(_ESCAPES)}"' for key, label in labels)
        yield f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
