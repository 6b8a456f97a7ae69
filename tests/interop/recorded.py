"""The fixtures in golden/: what Sidekiq 6.4 wrote, with the call that made it write so. Made by `record.rb`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def names() -> set[str]:
    return {path.stem for path in GOLDEN.glob("*.json")}


def recorded(name: str) -> dict[str, Any]:
    """`call`, `key`, `raw` (a list: newest first; a sorted set: lowest score first) and, of a sorted set, `scores`."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found
