"""`manage.py check` tells what is wrong with WURK, with an id and a hint for each."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Error, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError


def found(tag: str | None = "wurk") -> list[tuple[str | None, bool]]:
    return [(each.id, isinstance(each, Error) and bool(each.hint)) for each in run_checks(tags=tag and [tag])]


@pytest.mark.parametrize(
    ("wurk", "check_id"),
    [
        ({"CONCURENCY": 5}, "wurk_django.E001"),
        ({"CONCURRENCY": 0}, "wurk_django.E002"),
        ({"HEARTBEAT_TTL": 5}, "wurk_django.E004"),
    ],
)
def test_a_wrong_setting_is_an_error_with_id_and_hint(wurk: Any, check_id: str, settings: Any) -> None:
    settings.WURK = {"REDIS": "redis://", **wurk}
    assert found() == [(check_id, True)]


def test_no_redis_in_production_is_an_error_with_id_and_hint(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    settings.WURK = {}
    assert found() == [("wurk_django.E003", True)]


def test_everything_that_is_wrong_is_told_at_once(settings: Any) -> None:
    settings.WURK = {"REDIS": "x", "CONCURENCY": 5, "QUEUES": []}
    assert sorted(check_id for check_id, _hint in found() if check_id) == [
        "wurk_django.E001",
        "wurk_django.E002",
        "wurk_django.E002",
    ]


def test_right_settings_pass_all_checks(settings: Any) -> None:
    settings.WURK = {"REDIS": "redis://127.0.0.1:1/0", "CONCURRENCY": 5}
    assert found(tag=None) == []


def test_the_checks_belong_to_manage_check(settings: Any) -> None:
    settings.WURK = {"REDIS": "redis://", "CONCURENCY": 5}
    with pytest.raises(SystemCheckError, match=r"wurk_django\.E001"):
        call_command("check")
