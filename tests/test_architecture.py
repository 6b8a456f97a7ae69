"""Holds the drawing of docs/architecture.md: who may import whom, and where Redis and Django may be touched."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "wurk_django"

GROUND = {
    "errors", "clock", "version", "keys", "wire", "component", "hooks", "middleware", "registry", "tied_process",
    "health",
}  # fmt: skip

#: A floor may import the floors that are named for it, besides the ground.
FLOORS: dict[str, set[str]] = {
    **{name: set() for name in GROUND},
    "session": set(),
    "connection": {"session"},
    "embedded": set(),
    "script": {"connection"},
    "feature": set(),
    "config": {"connection", "feature"},
    "storage": {"config", "script", "connection"},
    "client": {"storage", "config", "connection"},
    "buffer": {"client", "config", "connection"},
    "jobs": {"client", "config"},
    "worker": {"jobs", "storage", "config", "connection"},
    "database": {"config"},
    "conf": {"database", "buffer", "embedded", "config", "connection", "feature"},
    "checks": {"conf"},
    "apps": {"conf", "config", "database", "checks"},
    "api": {"client", "storage", "config", "connection"},
    "commands": {"conf", "worker", "api", "storage", "config", "health"},
    "management": {"commands", "conf", "config", "worker"},
    "__init__": {"client", "jobs"},
}
DOORS = {"apps", "management", "models", "admin"}
FACE = {"database", "conf", "checks", *DOORS}
#: Modules that speak to Redis: the others go through them.
REDIS_MODULES = {"storage", "connection", "session", "script"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "migrations" not in path.parts)


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Absolute names of what a module imports, and whether it does so only for the type checker."""
    tree = ast.parse(path.read_text())
    package = ["wurk_django", *path.relative_to(ROOT).parent.parts]
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{module}.{alias.name}", id(node) in typing_only


def internal(path: Path) -> Iterator[str]:
    for name, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "wurk_django" and len(parts) > 1:
            yield parts[1]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_run_down_only(path: Path) -> None:
    floor = floor_of(path)
    assert floor in FLOORS, f"{floor} stands on no floor: add it to the drawing, here and in docs/architecture.md"
    allowed = FLOORS[floor] | GROUND | {floor, "VERSION"}
    upward = {name for name in internal(path) if name in FLOORS} - allowed
    assert not upward, f"{path.name} may not import {sorted(upward)}"


def test_the_ground_imports_nothing_but_ground() -> None:
    for path in modules():
        if floor_of(path) in GROUND:
            assert {name for name in internal(path) if name in FLOORS} <= GROUND, path


def test_nobody_imports_a_door() -> None:
    for path in modules():
        if floor_of(path) not in DOORS:
            assert not DOORS & set(internal(path)), path


def test_django_is_imported_in_the_face_and_the_doors_only() -> None:
    for path in modules():
        if floor_of(path) not in FACE:
            found = [name for name, _ in imports(path) if name.split(".")[0] in {"django", "asgiref"}]
            assert not found, f"{path}: {found}"


def test_redis_py_is_imported_by_the_factory_and_for_the_types_of_the_blocking_claims() -> None:
    allowed = {ROOT / "connection.py", ROOT / "session.py", ROOT / "worker" / "blocks.py"}
    for path in modules():
        if path not in allowed:
            assert not [name for name, _ in imports(path) if name.split(".")[0] == "redis"], path
    assert [name for name, _ in imports(ROOT / "worker" / "blocks.py") if name.startswith("redis")] == [
        "redis.connection.Connection"
    ]


def test_commands_are_sent_by_storage_only() -> None:
    sends = re.compile(r"\.(?:execute|execute_packed|pipeline|pipeline_packed|transaction)\(")
    for path in modules():
        if floor_of(path) not in REDIS_MODULES:
            lines = [line for line in path.read_text().splitlines() if sends.search(line)]
            assert not lines, f"{path}: {lines}"


def test_key_names_are_spelled_in_keys_only() -> None:
    spelled = re.compile(
        r"""["'](?:queue:|stat:|super_fetch|process_cleanup|dear-leader|queues["']|paused["']|processes["']|dead["'])"""
    )
    for path in modules():
        if path.name == "keys.py" or floor_of(path) in {"conf", "commands", "management"}:
            continue
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith(("#", '"')))
        hits = [hit for hit in spelled.findall(code) if "paused" not in hit]
        # `dead` is also a job option, read from payloads; `queues` a field of what a process says of itself.
        fields = {("dead", "retry.py"), ("dead", "recovery.py"), ("queues", "processes.py")}
        hits = [hit for hit in hits if (hit.strip("\"'"), path.name) not in fields]
        assert not hits, f"{path}: {hits}"


def test_nothing_in_the_package_runs_code_out_of_data() -> None:
    banned = re.compile(r"\b(?:pickle|marshal|dill|jsonpickle|yaml\.load|eval|exec)\b\s*[.(]|import (?:pickle|marshal)")
    for path in modules():
        assert not banned.search(path.read_text()), path
