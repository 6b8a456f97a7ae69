"""The settings pages say what the code does."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from wurk_django import conf
from wurk_django.config import Options

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `([A-Z_]+)` \|([^|]*)\|([^|]*)\|", re.MULTILINE)
ELSEWHERE = {"DEFAULT_JOB_OPTIONS", "TAG", "REDIS"}  # their defaults are no single literal


def rows(page: str) -> dict[str, str]:
    return {name: default.strip().strip("`") for name, _, default in ROW.findall((ROOT / page).read_text())}


def test_every_setting_is_on_the_page_and_nothing_else() -> None:
    assert set(rows("docs/settings.md")) == set(conf.CHECKS)


@pytest.mark.parametrize("name", sorted(set(conf.OPTION_CHECKS) - ELSEWHERE))
def test_the_default_on_the_page_is_the_default_of_the_code(name: str) -> None:
    [default] = [field.default for field in fields(Options) if field.name == name.lower()]
    written = ast.literal_eval(rows("docs/settings.md")[name])
    assert written == (list(default) if isinstance(default, tuple) else default)


def test_the_readme_repeats_the_settings_page() -> None:
    page = rows("docs/settings.md")
    for name, default in rows("README.md").items():
        assert name in page
        if name != "REDIS":
            assert default == page[name]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (folder / target).exists(), f"{page} links to {target}"
