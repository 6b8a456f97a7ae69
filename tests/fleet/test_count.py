"""How many processes: the command line, the settings, the environment, the cores and what the control group pays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wurk_django.worker.fleet.count import cgroup_quotas, process_count, usable_cores

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 1),
        ({"WURK_COUNT": "3"}, 3),
        ({"SIDEKIQ_COUNT": "4"}, 4),
        ({"WURK_COUNT": "3", "SIDEKIQ_COUNT": "4"}, 3),
        ({"WURK_COUNT": "", "SIDEKIQ_COUNT": "4"}, 4),
        ({"WURK_COUNT": " 2 "}, 2),
        ({"WURK_COUNT": "0.25"}, 1),
        ({"WURK_COUNT": "2.5"}, 2),
        ({"WURK_COUNT": "many"}, 1),
        ({"WURK_COUNT": "0"}, 1),
        ({"WURK_COUNT": "-3"}, 1),
        ({"WURK_COUNT": "nan"}, 1),
        ({"WURK_COUNT": "inf"}, 1),
    ],
)
def test_the_environment_counts_where_nobody_else_says(environment: dict[str, str], count: int) -> None:
    assert process_count(None, environment) == count


def test_the_command_line_and_the_settings_come_first() -> None:
    assert process_count(2, {"WURK_COUNT": "7"}) == 2
    assert process_count(1, {"WURK_COUNT": "7"}) == 1


def test_auto_is_one_for_each_core_that_may_be_used() -> None:
    assert process_count("auto", {}) == process_count(None, {"WURK_COUNT": "auto"}) == usable_cores()
    assert 1 <= usable_cores() <= CORES


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quotas"),
    [
        ({}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, [1.5]),
        (
            {
                "proc/self/cgroup": "0::/system.slice/wurk.service\n",
                "sys/fs/cgroup/system.slice/wurk.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/system.slice/cpu.max": "50000 100000\n",
            },
            [0.5],
        ),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, [3.0]),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "garbage\n"}, []),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/cpu.max": "100000 0\n"}, []),
    ],
)
def test_a_quota_is_read_from_both_kinds_of_control_groups(
    files: dict[str, str], quotas: list[float], tmp_path: Path
) -> None:
    assert list(cgroup_quotas(lay(tmp_path, files))) == quotas


def test_a_quota_is_rounded_up_and_never_more_than_the_cores_nor_less_than_one(tmp_path: Path) -> None:
    root = {"proc/self/cgroup": "0::/\n"}
    assert usable_cores(lay(tmp_path, {**root, "sys/fs/cgroup/cpu.max": "10000 100000\n"})) == 1
    assert usable_cores(lay(tmp_path, {**root, "sys/fs/cgroup/cpu.max": "110000 100000\n"})) == min(2, CORES)
    assert usable_cores(lay(tmp_path, {**root, "sys/fs/cgroup/cpu.max": "99900000 100000\n"})) == CORES
