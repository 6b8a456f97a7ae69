"""Bytes become data and never code. Reads the source of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "wurk_django"
FORMATS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "jsonpickle", "msgpack"}
EVALUATORS = {"eval", "exec", "compile", "__import__", "execfile"}
IMPORTERS = {
    "import_module",
    "import_string",
    "import_from_string",
    "find_spec",
    "exec_module",
    "load_module",
    "resolve_name",
}
#: Who may import by name, and why the name is none from Redis: our own lazy names, paths in the settings.
MAY_IMPORT = {"__init__.py", "conf.py", "management/commands/wurk.py"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def called(tree: ast.AST) -> Iterator[str]:
    """What is called, by the last part of its name; an import of a name that stands in the source is no danger."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) if isinstance(node.func, ast.Attribute) else None
            bare = getattr(node.func, "id", None)
            constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if bare in EVALUATORS or ((name or bare) in IMPORTERS and not constant):
                yield str(name or bare)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


everywhere = pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))


@pytest.mark.oracle("safety:S-01")
@everywhere
def test_no_format_but_json_is_read_and_nothing_is_evaluated(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not FORMATS & set(imported(tree))
    assert not EVALUATORS & set(called(tree))


@pytest.mark.oracle("safety:S-02")
@everywhere
def test_nothing_is_imported_by_name_but_our_own_modules_and_paths_of_the_settings(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in MAY_IMPORT:
        assert not IMPORTERS & set(called(ast.parse(path.read_text())))


@pytest.mark.oracle("safety:S-02")
@everywhere
def test_no_attribute_is_looked_up_by_a_name_that_is_no_constant_where_payloads_are_handled(path: Path) -> None:
    """Exempt: the lists of our own verbs and defaults, which are written in the source."""
    exempt = {"__init__.py", "conf.py", "jobs.py"}
    if path.name in exempt:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"getattr", "setattr", "hasattr"}:
            assert isinstance(node.args[1], ast.Constant), f"line {node.lineno}"


def test_the_scan_finds_what_it_looks_for() -> None:
    tree = ast.parse(
        "import pickle, yaml.loader\nfrom marshal import loads\n"
        "eval('1')\nre.compile('x')\nfind_spec('known')\nimportlib.import_module(name)\n"
    )
    assert set(imported(tree)) == {"pickle", "yaml", "marshal"}
    assert set(called(tree)) == {"eval", "import_module"}
