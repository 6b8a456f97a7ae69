"""Settings of the property tests of this room."""

from __future__ import annotations

from hypothesis import settings

# A shared machine is slow now and then; that is no finding.
settings.register_profile("wurk", deadline=None)
settings.load_profile("wurk")
