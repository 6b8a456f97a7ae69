"""Redis clients come from one place (docs: architecture). Reads the source of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "wurk_django"
FACTORY = ROOT / "connection.py"
#: Names with which a client, a pool or a connection of redis-py, valkey or django-redis is made.
CONSTRUCTORS = {
    "StrictRedis", "RedisCluster", "Sentinel", "SentinelConnectionPool", "ConnectionPool", "BlockingConnectionPool",
    "Connection", "SSLConnection", "UnixDomainSocketConnection", "from_url", "from_pool", "get_redis_connection",
    "Valkey", "create_connection",
}  # fmt: skip
#: Uses that are none: the supervisor of the embedded server asks it for a PING, before there is a Redis to speak of; a
#: health probe asks a worker.
KNOWN = {"embedded.py": {"create_connection"}, "health.py": {"create_connection"}}


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            target = node.func
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            yield node.lineno, name


def imported(path: Path) -> set[str]:
    """Top-level packages that a module imports, at run time or for the type checker."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_but_the_factory_makes_a_client_a_pool_or_a_connection(path: Path) -> None:
    if path == FACTORY:
        assert "parse_url" in path.read_text()
        return
    made = {name for _, name in calls(path)} & CONSTRUCTORS - KNOWN.get(path.name, set())
    assert not made
    assert not imported(path) & {"valkey", "aioredis", "django_redis"}
    assert not re.search(r"\bredis\.(?:asyncio|sentinel|cluster)\b", path.read_text())


def test_the_scan_finds_what_it_looks_for(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import redis\nfrom django_redis import get_redis_connection\nredis.Redis.from_url('x')\n")
    assert {name for _, name in calls(bad)} & CONSTRUCTORS == {"from_url"}
    assert imported(bad) == {"redis", "django_redis"}


def test_the_factory_makes_connections_in_one_function_without_retries() -> None:
    text = FACTORY.read_text()
    assert text.count("Retry(NoBackoff(), 0)") == 1
    assert text.count("protocol=2") == 1
    [opener] = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == "_open"
    ]
    made = {name for _, name in calls(FACTORY)} & CONSTRUCTORS
    assert made == set(), "the class is a parameter of _open, so nothing else constructs one"
    assert "Retry" in ast.dump(opener)
