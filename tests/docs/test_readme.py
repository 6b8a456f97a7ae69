"""The README's first job works exactly as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis as redis_py

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ADDRESS = "redis://localhost:6379/0"
BASE = """
SECRET_KEY = "readme"
USE_TZ = True
BASE_DIR = "."
"""


def block(first_line: str) -> str:
    """The Python block that starts with this line."""
    [found] = [code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if code.startswith(first_line)]
    return found


def run(project: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}.", "DJANGO_SETTINGS_MODULE": "settings"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, redis_url: str) -> Path:
    """A project made of the README's blocks: with this test's Redis, and its own app in place of the dots."""
    settings = block("# settings.py")
    assert "..." in settings
    assert ADDRESS in settings
    settings = settings.replace("...", '"yourapp"').replace(ADDRESS, redis_url)
    (tmp_path / "settings.py").write_text(BASE + settings)
    (tmp_path / "yourapp").mkdir()
    (tmp_path / "yourapp" / "__init__.py").touch()
    (tmp_path / "yourapp" / "jobs.py").write_text(block("# yourapp/jobs.py"))
    return tmp_path


def test_the_first_job_is_enqueued_and_run_as_it_is_written(project: Path, redis: redis_py.Redis) -> None:
    # given
    anywhere = project / "anywhere.py"
    anywhere.write_text("import django; django.setup()\n" + block("# anywhere"))
    run(project, "anywhere.py")
    assert redis.llen("queue:mail") == 3
    assert redis.zcard("schedule") == 1
    # when
    command = re.search(r"^    python manage\.py (wurk .*)$", README, re.MULTILINE)
    assert command is not None
    run(project, "-m", "django", *command[1].split(), "--burst")
    # then
    assert redis.llen("queue:mail") == 0
    assert redis.get("stat:processed") == b"3"
    assert redis.get("stat:failed") in (None, b"0")


def test_a_job_is_pushed_to_the_other_language_as_it_is_written(project: Path, redis: redis_py.Redis) -> None:
    script = project / "ruby.py"
    script.write_text("import django; django.setup()\n" + block("from wurk_django import Client"))
    run(project, "ruby.py")
    payload = json.loads(redis.lindex("queue:ruby", 0))
    assert (payload["class"], payload["args"], payload["retry"]) == ("Mailer", [42], True)


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake (\w[\w-]*)", README))
    assert named >= {"demo", "test"}
    assert named <= targets


def test_the_oldest_versions_are_those_of_the_metadata_and_the_boot_check() -> None:
    from wurk_django.worker import boot

    metadata = (ROOT / "setup.cfg").read_text()
    assert "Python 3.11 or newer" in README
    assert "python_requires = >=3.11" in metadata
    assert "Django>=5.2" in metadata
    assert f"Redis {boot.OLDEST['Redis'][0]}.{boot.OLDEST['Redis'][1]}" in README
    assert f"Valkey {boot.OLDEST['Valkey'][0]}.{boot.OLDEST['Valkey'][1]}" in README


def test_every_extra_that_the_readme_installs_exists() -> None:
    metadata = (ROOT / "setup.cfg").read_text()
    for extra in re.findall(r"wurk-django\[([\w,]+)\]", README):
        for name in extra.split(","):
            assert re.search(rf"^{name} =", metadata, re.MULTILINE), name
