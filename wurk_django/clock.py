"""Which clock is for what.

`now_ms` and `now_s` are wall-clock times: they are stored and shown. `monotonic` measures: deadlines, intervals,
the age of a cache. What two processes must agree on (due, leases, limits) is judged by Redis TIME inside a script.
"""

from __future__ import annotations

import time
from time import monotonic as monotonic


def now_ms() -> int:
    """The wall clock as whole milliseconds since the epoch, rounded down."""
    return time.time_ns() // 1_000_000


def now_s() -> float:
    """The wall clock as seconds since the epoch."""
    return time.time()
