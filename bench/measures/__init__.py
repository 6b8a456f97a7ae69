"""The measures, in the order in which they run: each takes the arena and a number of rounds and gives an Outcome."""

from __future__ import annotations

from collections.abc import Callable

from bench.arena import Arena
from bench.measures.drain import drain, processes, round_trips
from bench.measures.enqueue import enqueue
from bench.measures.idle import boot, idle_cpu, memory
from bench.measures.latency import latency
from bench.measures.work import cpu1ms, sleep10ms
from bench.results import Outcome

MEASURES: dict[str, Callable[[Arena, int], Outcome]] = {
    "drain": drain,
    "processes": processes,
    "round-trips": round_trips,
    "enqueue": enqueue,
    "latency": latency,
    "sleep10ms": sleep10ms,
    "cpu1ms": cpu1ms,
    "memory": memory,
    "boot": boot,
    "idle-cpu": idle_cpu,
}
