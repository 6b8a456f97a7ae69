"""System checks: what is wrong with the settings, said by `manage.py check` before anything runs."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error

from . import conf


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """E001 unknown key, E002 wrong value, E003 no Redis, E004 heartbeat shorter than two beats."""
    return [Error(problem.message, hint=problem.hint, id=problem.check_id) for problem in conf.problems(conf.read())]
