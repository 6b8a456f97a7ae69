"""Deploy marks: when which version went live. Wire: docs/spec/core.md §14."""

from __future__ import annotations

from datetime import UTC, date, datetime

from .. import config as configuration
from ..config import Config
from ..storage import deploys


class Deploys:
    """The marks of deployments."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or configuration.default()

    def mark(self, label: str, at: datetime | None = None) -> str | None:
        """Mark this minute, or that of an aware datetime; None when the label was marked within the last minute."""
        return deploys.mark(self.config.redis, label, at)

    def fetch(self, day: date | None = None) -> dict[str, str]:
        """The marks of one UTC day, today if none is named: minute to label."""
        return deploys.marks(self.config.redis, (day or datetime.now(UTC).date()).strftime("%Y%m%d"))
