"""What a room plugs into the core. The core never names a room; a room lists here what it brings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .component import Component


@dataclass(frozen=True)
class Feature:
    """A room's plug: middleware classes for both chains, lifecycle handlers, background components of a worker.

    `components` makes them when a worker starts; it is given the running process. The order among features is the
    order of the list in `conf.py`.
    """

    name: str
    client_middleware: tuple[type[Any], ...] = ()
    server_middleware: tuple[type[Any], ...] = ()
    hooks: tuple[tuple[str, Callable[[], object]], ...] = ()
    components: Callable[[Any], tuple[Component, ...]] | None = None
