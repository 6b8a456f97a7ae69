"""What starting Django does, and what it does not: jobs are found; nothing connects, reads settings or starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.django.conftest import CHECKOUT, Project

SET_UP = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'; import django; django.setup()\n"


def run_alone(code: str) -> subprocess.CompletedProcess[str]:
    """Python without any Django settings."""
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**env, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def test_jobs_and_tasks_modules_of_every_app_are_found_without_being_imported_by_anybody(project: Project) -> None:
    done = project.python("-c", SET_UP + "from wurk_django import registry; print(registry.names())")
    assert done.returncode == 0, done.stderr
    assert "'noticed.jobs.add'" in done.stdout
    assert "'plain.tasks.from_tasks'" in done.stdout


def test_starting_django_connects_to_nothing_and_starts_no_thread(project: Project) -> None:
    code = """
import socket, threading
def refuse(*arguments, **options): raise AssertionError("a socket was opened")
socket.socket.connect = refuse
import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'
import django; django.setup()
import noticed.jobs
assert threading.active_count() == 1, threading.enumerate()
"""
    done = project.python("-c", code)
    assert done.returncode == 0, done.stderr


def test_starting_django_does_not_read_wurk(project: Project) -> None:
    done = project.python("-c", SET_UP, NONSENSE=1)
    assert done.returncode == 0, done.stderr


def test_the_package_imports_without_django_settings_and_brings_nothing_heavy_along() -> None:
    code = """
import sys, wurk_django
heavy = {"redis", "django", "cryptography", "croniter", "channels"} & set(sys.modules)
assert not heavy, heavy
from wurk_django import Client, Job, current_job, job
assert "django" not in sys.modules
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr


def test_jobs_are_declared_and_prepared_without_django() -> None:
    code = """
import sys
from wurk_django import Client, Job, job
@job(queue="low")
def add(left, right): return left + right
class Add(Job):
    def perform(self, left, right): pass
assert add(1, 2) == 3
assert Client().prepare({"class": add.job_class, "args": [1, 2]})["queue"] == "low"
assert "django" not in sys.modules
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr


def test_the_worker_imports_without_django_settings() -> None:
    code = """
import sys, wurk_django.worker.launcher, wurk_django.worker.process, wurk_django.worker.signals
assert "django" not in sys.modules
"""
    done = run_alone(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["Client", "CurrentJob", "Job", "current_job", "job"])
def test_public_names_are_there(name: str) -> None:
    import wurk_django

    assert name in wurk_django.__all__
    assert callable(getattr(wurk_django, name))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import wurk_django

    with pytest.raises(AttributeError, match="nonsense"):
        wurk_django.nonsense  # noqa: B018


def test_importing_the_module_of_a_public_name_does_not_take_its_place() -> None:
    code = "import wurk_django.jobs; from wurk_django import job; assert callable(job) and not hasattr(job, '__path__')"
    done = run_alone(code)
    assert done.returncode == 0, done.stderr
