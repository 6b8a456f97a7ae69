"""The sub-commands: run in this process with the settings of a test, or as a user runs them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from django.core.management import call_command

from tests.django.conftest import Configure, Project, configure, project

__all__ = ["Configure", "Project", "configure", "project"]


@pytest.fixture
def wurk(configure: Configure) -> Callable[..., str]:
    """`wurk("status")`: what the sub-command prints, with the test's Redis in its settings."""
    configure()

    def run(*arguments: str) -> str:
        printed = io.StringIO()
        call_command("wurk", *arguments, stdout=printed)
        return printed.getvalue()

    return run
