"""The jobs of a process by their name on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from wurk_django import registry
from wurk_django.errors import ConfigurationError, UnknownJob
from wurk_django.jobs import Job, job


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_jobs", {})


def declare(name: str = "Mailer", qualname: str = "Mailer", module: str = "app.jobs") -> type[Any]:
    made = type("Mailer", (), {"__module__": module, "__qualname__": qualname})
    registry.register(name, made)
    return made


def test_a_declared_job_is_found_by_its_exact_name() -> None:
    made = declare()
    assert registry.find("Mailer") is registry.get("Mailer") is made
    for other in ("mailer", "Mailer ", " Mailer", "app.jobs.Mailer", "Mail", ""):
        assert registry.get(other) is None
        with pytest.raises(UnknownJob, match="no job named"):
            registry.find(other)


def test_a_reloaded_module_replaces_its_jobs() -> None:
    declare()
    again = declare()
    assert registry.find("Mailer") is again


def test_two_jobs_of_one_name_are_an_error_that_names_both_places() -> None:
    declare()
    with pytest.raises(ConfigurationError, match=r"'Mailer': app\.jobs\.Mailer and other\.jobs\.Mailer; give one"):
        declare(module="other.jobs")


def test_names_are_sorted() -> None:
    for name in ("b", "a", "c"):
        declare(name, name)
    assert registry.names() == ["a", "b", "c"]


def test_classes_with_work_and_functions_enter_under_name_or_path() -> None:
    class Base(Job): ...

    class Work(Base, name="Own"):
        def perform(self) -> None: ...

    @job
    def function() -> None: ...

    assert registry.names() == sorted(["Own", f"{__name__}.{function.job_class.__qualname__}"])
    assert registry.find("Own") is Work


def test_the_message_for_an_unknown_job_is_short_and_says_where_jobs_are_looked_for() -> None:
    with pytest.raises(UnknownJob, match="modules `jobs` and `tasks`") as unknown:
        registry.find("x" * 10_000)
    assert len(str(unknown.value)) < 500
