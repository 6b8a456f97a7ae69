"""A connection whose command was cut short is thrown away: no reply ever answers another question."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.connection.conftest import wait_for
from tests.support.faults import CutReply, Delay, LoseReply, LoseRequest, named
from tests.support.proxy import Proxy
from wurk_django.connection import Redis, Session
from wurk_django.errors import RedisUnavailable

ROOT = Path(__file__).parents[2]


class Cancelled(BaseException):
    """What an interrupt raises."""


@pytest.mark.oracle("safety:S-65")
@pytest.mark.parametrize(
    "fault",
    [
        CutReply(2), CutReply(2, hang=True), CutReply(6), LoseReply(), LoseReply(hang=True), LoseRequest(hang=True),
        Delay(reply_s=0.6),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("pipelined", [False, True])
def test_the_next_block_gets_its_own_answer_on_another_connection(
    fault: Any, pipelined: bool, proxy: Proxy, through: Redis
) -> None:
    proxy.on(named("ECHO"), fault, skip=1 if pipelined else 0)

    with pytest.raises(RedisUnavailable):
        if pipelined:
            through.pipeline([("ECHO", "one"), ("ECHO", "two"), ("ECHO", "three")])
        else:
            through.execute("ECHO", "one")

    assert through.execute("ECHO", "mine") == b"mine"
    used = [command.connection for command in proxy.commands if command.name == "ECHO"]
    assert used[-1] not in used[:-1]


@pytest.mark.oracle("safety:S-65")
def test_a_block_that_left_replies_unread_leaves_no_connection_behind(proxy: Proxy, through: Redis) -> None:
    def half(session: Session) -> None:
        session._send(b"*2\r\n$4\r\nECHO\r\n$5\r\nstray\r\n")
        raise Cancelled

    with pytest.raises(Cancelled):
        through.run(half)

    assert through.execute("ECHO", "mine") == b"mine"
    assert proxy.accepted == 2


@pytest.mark.oracle("safety:S-65")
def test_interrupted_reads_cross_no_reply_and_block_no_pool(proxy: Proxy) -> None:
    proxy.latency(0.0005, 0.0005)

    finished = subprocess.run(
        [sys.executable, "-m", "tests.connection.cancelling", proxy.url, "1500"],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
    )  # fmt: skip

    assert finished.stdout, finished.stderr
    result = json.loads(finished.stdout)
    assert result["crossed"] == []
    assert result["stuck"] == []
    assert result["cancelled"] >= 500  # of 1,500, should this machine be very busy


@pytest.mark.oracle("safety:S-65")
def test_the_client_library_is_pinned_above_its_cancellation_bugs() -> None:
    setup = (ROOT / "setup.cfg").read_text()
    found = re.search(r"^\s*redis\s*>=\s*(\d+)\.(\d+)", setup, re.MULTILINE)
    assert found, "setup.cfg names no oldest redis-py"
    assert (int(found[1]), int(found[2])) >= (4, 6)


def test_a_connection_that_was_closed_under_a_block_is_not_opened_again_behind_its_back(
    redis: redis_py.Redis, proxy: Proxy, through: Redis
) -> None:
    def block(session: Session) -> None:
        session.execute("INCR", "n")
        session._connection.disconnect()
        session.execute("INCR", "n")

    with pytest.raises(RedisUnavailable, match="closed while it was in use"):
        through.run(block)

    assert int(redis.get("n")) == 1
    assert proxy.accepted == 1
    wait_for(lambda: through.execute("PING"))
