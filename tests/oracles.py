"""Which numbered requirements of docs/spec a test cites: `python -m tests.oracles [--all]`.

Reads the ids out of the spec files and the `oracle` markers out of the tests; prints covered and uncovered ids per
file. Ids that docs/deviations.md lists (in a table row or bullet that starts with `file:ID`) count as explained.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "spec"
ID = re.compile(r"^(?:\| |\* \*\*)([A-Z][A-Z0-9]*(?:-T)?-?\d+)(?: \||\*\*)", re.MULTILINE)
EXPLAINED = re.compile(r"`([a-z]+:[A-Z][A-Z0-9-]*\d+)`")


def required() -> dict[str, list[str]]:
    """Spec file (stem) to its ids, in their order."""
    found = {path.stem: list(dict.fromkeys(ID.findall(path.read_text()))) for path in sorted(SPEC.glob("*.md"))}
    return {stem: ids for stem, ids in found.items() if ids}


def cited() -> dict[str, set[str]]:
    """`file:ID` to the tests that cite it."""
    tests: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, oracle in _markers(ast.parse(path.read_text())):
            tests[oracle].add(f"{path.relative_to(ROOT)}::{name}")
    return tests


def explained() -> set[str]:
    """`file:ID` that docs/deviations.md accounts for."""
    return set(EXPLAINED.findall((ROOT / "docs" / "deviations.md").read_text()))


def _markers(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", []):
            yield from ((node.name, text) for text in _texts(decorator))
        if isinstance(node, ast.Call) and _is_param(node):
            for keyword in node.keywords:
                if keyword.arg == "marks":
                    yield from (("param", text) for text in _texts(keyword.value))
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            yield from (("module", text) for text in _texts(node.value))


def _is_param(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "param"


def _texts(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "oracle":
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="name the tests of each covered id too")
    show_tests = parser.parse_args().all
    tests, told = cited(), explained()
    known = {f"{stem}:{oracle}" for stem, ids in required().items() for oracle in ids}
    for stem, ids in required().items():
        covered = [oracle for oracle in ids if f"{stem}:{oracle}" in tests]
        open_ids = [oracle for oracle in ids if f"{stem}:{oracle}" not in tests]
        deviating = [oracle for oracle in open_ids if f"{stem}:{oracle}" in told]
        missing = [oracle for oracle in open_ids if f"{stem}:{oracle}" not in told]
        print(f"\n{stem}: {len(covered)} of {len(ids)} covered, {len(deviating)} explained in deviations.md")
        print(f"  covered:   {' '.join(covered) or '-'}")
        print(f"  explained: {' '.join(deviating) or '-'}")
        print(f"  uncovered: {' '.join(missing) or '-'}")
        if show_tests:
            for oracle in covered:
                print(f"    {oracle}: {', '.join(sorted(tests[f'{stem}:{oracle}']))}")
    unknown = sorted(set(tests) - known)
    if unknown:
        print(f"\ncited but in no spec file: {' '.join(unknown)}")
    return 1 if unknown else 0


if __name__ == "__main__":
    raise SystemExit(main())
