"""What systemd is told, over a real datagram socket."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.worker.rig import Rig, wait_for
from wurk_django.worker import process, systemd


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in names}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def environment(listener: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": listener.getsockname(), **more}


def test_a_state_is_sent_as_one_datagram(listener: socket.socket) -> None:
    assert systemd.notify("READY=1", environment(listener))
    assert listener.recv(100) == b"READY=1"


def test_an_abstract_socket_is_reached_by_its_name() -> None:
    name = f"wurk-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.settimeout(5)

        assert systemd.notify("READY=1", {"NOTIFY_SOCKET": "@" + name})

        assert listener.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    assert not systemd.notify("READY=1", {"NOTIFY_SOCKET": address})
    assert not systemd.notify("READY=1", {})


def test_the_watchdog_is_petted_at_half_its_period(listener: socket.socket, rig: Rig) -> None:
    watchdog = systemd.watchdog(rig.config().report, environment(listener, WATCHDOG_USEC="1000000"))
    assert watchdog is not None
    watchdog.start()
    try:
        assert [listener.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
    finally:
        watchdog.stop()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "999999"},
        {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_is_not_for_us_or_too_eager_is_left_alone(variables: dict[str, str], rig: Rig) -> None:
    assert systemd.watchdog(rig.config().report, variables) is None


def test_a_watchdog_for_this_process_is_served(rig: Rig) -> None:
    variables = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}

    assert systemd.watchdog(rig.config().report, variables) is not None


@pytest.mark.usefixtures("_signals_as_before")
def test_a_worker_says_when_it_is_ready_and_when_it_stops(
    listener: socket.socket, redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())
    seen: list[bytes] = []

    assert process.run(rig.config(), burst=True, on_ready=lambda _: seen.append(listener.recv(100))) == 0

    assert seen == [b"READY=1"]
    wait_for(lambda: listener.recv(100) == b"STOPPING=1")
