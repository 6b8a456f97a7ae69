"""The wheel, installed beside a fresh project, is all that a user needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.servers import RedisServer

pytestmark = [pytest.mark.packaging, pytest.mark.xdist_group("packaging")]

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command with nothing of this checkout on its path; its output, or an assertion with it."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is: the source distribution from a clean tree, the wheel from that."""
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "tests", "example_project", "wurk_django"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "var"))
        else:
            shutil.copy(ROOT / name, tree)
    run(sys.executable, "-m", "build", "--outdir", folder, tree, cwd=folder)
    [built] = folder.glob("wurk_django-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel; what it depends on is borrowed from this one, this checkout is not."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    [site] = home.glob("lib/python*/site-packages")
    own = Path(sysconfig.get_path("purelib"))
    for entry in own.iterdir():
        # An editable install would put the checkout back on the path.
        if not entry.name.startswith(("__editable__", "wurk_django", "__pycache__")):
            (site / entry.name).symlink_to(entry)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=home)
    return home / "bin" / "python"


@pytest.fixture
def project(python: Path, redis_server: RedisServer, tmp_path: Path) -> Path:
    """What `django-admin startproject` makes, with the app and one job in it."""
    run(python, "-m", "django", "startproject", "shop", tmp_path, cwd=tmp_path)
    settings = tmp_path / "shop" / "settings.py"
    text = settings.read_text().replace("INSTALLED_APPS = [", "INSTALLED_APPS = [\n    'wurk_django',\n    'shop',")
    settings.write_text(f"{text}\nWURK = {{'REDIS': {redis_server.url!r}, 'QUEUES': ['fresh']}}\n")
    (tmp_path / "shop" / "jobs.py").write_text(
        "from pathlib import Path\n"
        "from wurk_django import job\n\n\n"
        "@job(queue='fresh')\n"
        "def note(text: str) -> None:\n"
        "    Path('ran').write_text(text)\n"
    )
    return tmp_path


def test_the_wheel_has_what_runs_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("*.lua", "py.typed", "*.py", "*.html", "*.css", "*.js"):
        shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "wurk_django").rglob(kind)}
        assert shipped <= names, sorted(shipped - names)
    assert not [name for name in names if name.startswith(("tests", "bench", "example_project", "docs"))]


def test_the_installed_app_is_not_the_checkout(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import wurk_django; print(wurk_django.__file__)", cwd=tmp_path)

    assert str(ROOT) not in where


def test_a_fresh_project_checks_clean_and_runs_a_job(python: Path, project: Path, redis: redis_py.Redis) -> None:
    run(python, "-W", "error", "-m", "django", "check", cwd=project, DJANGO_SETTINGS_MODULE="shop.settings")
    run(
        python,
        "manage.py",
        "shell",
        "-c",
        "from shop.jobs import note; print(note.perform_async('hello'))",
        cwd=project,
    )
    assert redis.llen("queue:fresh") == 1

    run(python, "manage.py", "wurk", "--burst", cwd=project)

    assert (project / "ran").read_text() == "hello"
    assert redis.llen("queue:fresh") == 0
    assert redis.get("stat:processed") == b"1"


def test_the_admin_of_a_fresh_project_misses_no_template(python: Path, project: Path) -> None:
    run(python, "manage.py", "migrate", "--verbosity", "0", cwd=project)
    script = (
        "from django.contrib.auth.models import User; from django.test import Client\n"
        "browser = Client(HTTP_HOST='localhost'); browser.force_login(User.objects.create_superuser('keeper'))\n"
        "print(browser.get('/admin/').status_code, Client(HTTP_HOST='localhost').get('/admin/login/').status_code)"
    )
    assert run(python, "manage.py", "shell", "-v", "0", "-c", script, cwd=project).split()[-2:] == ["200", "200"]


def test_importing_the_package_costs_no_redis_and_no_settings(python: Path, tmp_path: Path) -> None:
    loaded = run(python, "-c", "import sys, wurk_django; print(sorted(sys.modules))", cwd=tmp_path)

    assert "'redis'" not in loaded
    assert "'django'" not in loaded


def test_a_worker_loads_neither_cryptography_nor_croniter(python: Path, project: Path) -> None:
    """They cost seven megabytes that only some rooms need. redis-py looks whether cryptography is there, no more."""
    script = (
        "import django, sys; django.setup();"
        "from wurk_django.management.commands import wurk;"
        "print([name for name in ('cryptography.hazmat', 'croniter', 'channels', 'django.contrib.admin.sites') "
        "if name in sys.modules])"
    )
    bare = project / "shop" / "bare.py"
    bare.write_text(
        "from shop.settings import *\nINSTALLED_APPS = ['django.contrib.contenttypes', 'wurk_django', 'shop']\n"
    )
    assert run(python, "-c", script, cwd=project, DJANGO_SETTINGS_MODULE="shop.bare").strip() == "[]"
