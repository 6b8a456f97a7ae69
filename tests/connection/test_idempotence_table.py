"""Every Redis call of the package is in the table of what may be sent again, and declares what the table says."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import wurk_django
from wurk_django.storage.idempotence import TABLE

ROOT = Path(wurk_django.__file__).parent
SENDS = {"execute", "pipeline", "transaction", "run", "run_many"}
#: Where calls pass through whatever their caller declares.
PASSING_ON = {"connection", "session", "script"}


def declared() -> dict[str, list[str]]:
    """`module.function` of everything that sends a block to Redis to what its calls declare, in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module in PASSING_ON:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for call in sends(function):
                    found[f"{module}.{function.name}"].append(declaration(call))
    return dict(found)


def sends(function: ast.FunctionDef) -> list[ast.Call]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and is_send(node)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def is_send(call: ast.Call) -> bool:
    """A command or a script on a pool. Commands on a session belong to a block, which is the pool's."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in SENDS:
        return False
    receiver = ast.unparse(call.func.value)
    target = ast.unparse(call.args[0]) if call.args else ""
    named = any(name.split(".")[-1].lstrip("_") in ("redis", "pool") for name in (receiver, target))
    return named or any(keyword.arg == "idempotent" for keyword in call.keywords)


def declaration(call: ast.Call) -> str:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "idempotent"), None)
    text = "False" if given is None else ast.unparse(given)
    return {"True": "yes", "False": "no"}.get(text, text)


DECLARED = declared()


def test_the_package_sends_blocks_to_redis() -> None:
    assert len(DECLARED) > 20  # else the search finds nothing and proves nothing
    assert DECLARED["storage.queues.push"] == ["no"]
    assert DECLARED["storage.queues.dispatch"] == ["not lanes"]


@pytest.mark.parametrize("function", sorted({*DECLARED, *TABLE}))
def test_a_call_declares_what_the_table_says(function: str) -> None:
    assert function in TABLE, f"{function} talks to Redis: add a row that says whether it may be sent again, and why"
    assert function in DECLARED, f"{function} is in the table and sends nothing"
    assert tuple(DECLARED[function]) == TABLE[function].declared
    assert TABLE[function].why
