"""Tells systemd when the worker is ready, stopping and alive. Does nothing outside a notify service.

Wire: sd_notify(3): a datagram to NOTIFY_SOCKET; WATCHDOG=1 at half of WATCHDOG_USEC.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..component import Periodic

SHORTEST_PERIOD_S = 1.0


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send one state; False when nobody listens."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return False
    target = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), target)
        return True
    return False


def watchdog_period_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants to hear that this process is alive; None when it does not ask this process."""
    text = environment.get("WATCHDOG_USEC", "")
    pid = environment.get("WATCHDOG_PID")
    if not text.isdecimal() or int(text) <= 0 or (pid and pid != str(os.getpid())):
        return None
    period_s = int(text) / 2_000_000
    return period_s if period_s >= SHORTEST_PERIOD_S / 2 else None


def watchdog(
    report: Callable[[BaseException, str], None], environment: Mapping[str, str] = os.environ
) -> Periodic | None:
    """The loop that pets the watchdog, or None when systemd does not ask this process for it."""
    period_s = watchdog_period_s(environment)
    if period_s is None:
        return None
    return Periodic("watchdog", lambda: notify("WATCHDOG=1", environment), lambda: period_s, report)
