"""What a child is like: small, silent towards systemd, deaf to what is the parent's, blind to the parent's sockets."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.fleet.conftest import Fleets, children_of, is_there
from tests.support.processes import eventually

pytestmark = pytest.mark.crash

MIB = 1 << 20
BARE = """
import django, time
from django.conf import settings
settings.configure()
django.setup()
print("here", flush=True)
time.sleep(60)
"""


@pytest.mark.oracle("safety:L18")
def test_a_worker_costs_no_more_than_60_megabytes_beside_django(stage: Fleets) -> None:
    bare = stage.python("-c", BARE)
    worker = stage.worker()
    worker.wait_until_ready(stage.redis)
    eventually(lambda: "here" in bare.output, 10, lambda: bare.output)

    cost = own_bytes(worker.pid) - own_bytes(bare.pid)

    print(f"\nMB beside Django: {cost / MIB:.1f}")
    assert cost / MIB <= 60


@pytest.mark.oracle("safety:L18")
def test_a_further_child_costs_no_more_than_25_megabytes(stage: Fleets) -> None:
    worker = stage.worker(flags=("-p", "3"))
    children = eventually(lambda: stage.redis.scard("processes") == 3 and children_of(worker.pid), 20)

    sizes = {pid: proportional_bytes(pid) / MIB for pid in children}

    print(f"\nMB of each child: {sorted(round(size, 1) for size in sizes.values())}")
    assert max(sizes.values()) <= 25


def proportional_bytes(pid: int) -> int:
    """The memory of a process, what it shares counted by its share."""
    return memory(pid)["Pss"]


def own_bytes(pid: int) -> int:
    """The memory of a process that no other has."""
    found = memory(pid)
    return found["Private_Clean"] + found["Private_Dirty"]


def memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name.rstrip(":"): int(size) * 1024 for name, size, *_ in map(str.split, lines)}


def test_systemd_hears_the_parent_once_and_no_child(stage: Fleets) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(stage.directory / "notify"))
        listener.settimeout(10)
        service = {"NOTIFY_SOCKET": str(stage.directory / "notify"), "WATCHDOG_USEC": "1000000"}
        fleet = stage.start(count=2, environment=service)
        fleet.wait_until(2)
        heard = [listener.recv(100)]
        while heard[-1] != b"READY=1":
            heard.append(listener.recv(100))
        fleet.send(signal.SIGTERM)
        assert fleet.wait() == 0
        while heard[-1] != b"STOPPING=1":
            heard.append(listener.recv(100))
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            while (late := listener.recv(100)) == b"WATCHDOG=1":
                heard.append(late)

    assert heard.count(b"READY=1") == heard.count(b"STOPPING=1") == 1
    assert b"WATCHDOG=1" in heard


def test_a_child_ignores_the_signal_for_rolling_restarts(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    before = fleet.children

    for pid in before:
        os.kill(pid, signal.SIGUSR1)
    jid = stage.push("Work")
    stage.wait_until_done([jid])

    assert fleet.children == before


def test_a_child_stopped_from_afar_is_replaced(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    [pid, *_] = fleet.children

    stage.redis.lpush(fleet.beating()[pid] + "-signals", "TERM")

    eventually(lambda: not is_there(pid), 10, "its end")
    fleet.wait_until(2)
    assert f"child {pid} ended with 0" in fleet.output


@pytest.mark.parametrize("signum", [signal.SIGTTIN, signal.SIGUSR2])
def test_what_is_told_to_the_parent_is_handed_on(signum: signal.Signals, stage: Fleets) -> None:
    fleet = stage.fleet(2)
    told = "MainThread" if signum == signal.SIGTTIN else "log files are open again"

    fleet.send(signum)

    eventually(lambda: fleet.output.count(told) == 2, 10, lambda: fleet.output)


def test_the_parent_keeps_one_connection_to_redis_at_most(stage: Fleets) -> None:
    fleet = stage.fleet(3, touch=True)
    for _ in range(20):
        sockets = [link for link in links_of(fleet.pid) if link.startswith("socket:")]
        assert len(sockets) <= 1, "what the import has opened was closed before the fork"


def links_of(pid: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found
