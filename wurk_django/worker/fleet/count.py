"""How many processes a fleet has (docs/spec/reliability.md §11.1)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLES = ("WURK_COUNT", "SIDEKIQ_COUNT")


def process_count(wanted: int | str | None, environment: Mapping[str, str] = os.environ) -> int:
    """What the command line or the settings want, else the environment, else 1. `"auto"`: one a core we may use."""
    if wanted == "auto":
        return usable_cores()
    if wanted is not None:
        return int(wanted)
    text = next((environment[name].strip() for name in VARIABLES if environment.get(name)), "")
    if text == "auto":
        return usable_cores()
    try:
        number = float(text)
    except ValueError:
        return 1
    return max(int(number), 1) if 0 < number < math.inf else 1


def usable_cores(root: Path = Path("/")) -> int:
    """The cores that this process may run on, no more than its control group pays for; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([cores, *(math.ceil(quota) for quota in cgroup_quotas(root))]), 1)


def cgroup_quotas(root: Path) -> Iterator[float]:
    """The CPU quotas in cores, of our control group and those above it; version 2, then version 1."""
    base = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _number, controllers, path = (*line.split(":", 2), "", "")[:3]
        group = base / path.lstrip("/") if not controllers else None
        while group is not None and group.is_relative_to(base):
            yield from _quota(*_read(group / "cpu.max").split())
            group = group.parent
    for name in ("cpu", "cpu,cpuacct"):
        folder = base / name
        yield from _quota(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _quota(quota: str = "", period: str = "", *_rest: str) -> Iterator[float]:
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:  # "max" and -1 are no limits
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
