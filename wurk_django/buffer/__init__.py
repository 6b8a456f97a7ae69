"""The outage buffer: pushes that find Redis away are kept in the memory of the process until it is back.

Off unless `RELIABLE_PUSH` is on. What is kept dies with the process. docs/spec/reliability.md §8.
"""

from __future__ import annotations

from .push_buffer import PushBuffer, install

__all__ = ["PushBuffer", "install"]
