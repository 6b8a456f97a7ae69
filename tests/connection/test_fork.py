"""A fork leaves the child an empty pool: no socket, lock or random state of the parent is used there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from wurk_django.connection import Redis

ROOT = Path(__file__).parents[2]
CHILDREN = 8


@pytest.fixture
def result(redis_url: str) -> dict[str, Any]:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.connection.forking", redis_url, str(CHILDREN)],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip
    assert finished.stdout, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


@pytest.mark.oracle("safety:S-66")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads the sockets of a process out of /proc")
def test_under_load_no_reply_crosses_a_fork_and_no_socket_is_shared(
    result: dict[str, Any], redis: redis_py.Redis
) -> None:
    children = result["children"]
    assert [child["error"] for child in children if "error" in child] == []
    assert result["crossed"] == []
    assert result["stuck"] == []
    assert result["parent went on"]
    assert [child["crossed"] for child in children if child["crossed"]] == []
    assert [child["inherited"] for child in children if child["inherited"]] == []
    assert [child["shared"] for child in children if child["shared"]] == []
    assert [child["stuck"] for child in children if child["stuck"]] == []
    assert len({child["jid"] for child in children}) == len({child["random"] for child in children}) == CHILDREN + 1
    jobs = [json.loads(raw) for raw in redis.lrange("queue:default", 0, -1)]
    assert sorted(job["args"][0] for job in jobs) == list(range(-1, CHILDREN))
    assert {job["jid"] for job in jobs} == {child["jid"] for child in children}


@pytest.mark.oracle("safety:S-66")
def test_a_child_dials_anew_and_the_parents_connection_lives_on(
    redis: redis_py.Redis, redis_url: str, make_pool: Callable[..., Redis]
) -> None:
    pool = make_pool(redis_url, size=1)
    number = pool.execute("CLIENT", "ID")
    reading, writing = os.pipe()

    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, b"%d" % pool.execute("CLIENT", "ID"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    theirs = int(os.read(reading, 100))
    os.close(reading)
    os.close(writing)

    assert theirs > number
    assert pool.execute("CLIENT", "ID") == number


@pytest.mark.oracle("safety:S-66")
def test_a_child_has_all_slots_though_the_parent_used_them(
    redis_url: str, redis: redis_py.Redis, make_pool: Callable[..., Redis]
) -> None:
    pool = make_pool(redis_url, size=2)

    def fork(_session: Any) -> int:
        return pool.run(lambda _: _child_can_use(pool, 2))

    assert pool.run(fork) == 0


def _child_can_use(pool: Redis, slots: int) -> int:
    """Fork; the exit status of a child that nests as many blocks as the pool has slots: 0 when that worked."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            answer = pool.run(lambda _: pool.execute("PING")) if slots == 2 else None
            status = 0 if answer == b"PONG" else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
