"""How fetching lives through the time in which Redis does not serve: when it tries again, and what it says."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..clock import monotonic

log = logging.getLogger("wurk")

FIRST_PAUSE_S = 0.05  # a line that was cut is back at once
MAX_PAUSE_S = 1.0
SERVED_S = 0.5  # an error that comes so long after the last try is a new one
WORTH_A_LINE_S = 0.2


class Downtime:
    """One for each dispatcher; told by the leading thread when Redis does not serve, and when it does."""

    def __init__(self, report: Callable[[BaseException, str], None]) -> None:
        self._report = report
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._tried_at = 0.0  # when the last pause was over

    @property
    def lasts(self) -> bool:
        """Redis did not serve when it was last asked."""
        return self._since is not None

    def meet(self, error: BaseException) -> float:
        """Redis does not serve: the first error in a row is told. Returns the seconds until the next try."""
        now = monotonic()
        if self._since is None:
            self._since = now
            self._report(error, "fetching")
        if now - self._tried_at >= SERVED_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, MAX_PAUSE_S)
        self._tried_at = now + pause_s
        return pause_s

    def end(self) -> None:
        """Redis serves."""
        if self._since is None:
            return
        lasted_s = monotonic() - self._since
        if lasted_s >= WORTH_A_LINE_S:
            log.info("Redis is back after %.1f s", lasted_s)
        self._since = None
