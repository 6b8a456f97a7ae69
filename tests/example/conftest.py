"""The example project as somebody has it who cloned it: a copy of its own, its site, a browser."""

from __future__ import annotations

import http.cookiejar
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import RedisServer

CHECKOUT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
OPEN_SHOP = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth import get_user_model
get_user_model().objects.create_superuser("keeper", password="keeper")
from example_project.shop import shelves
shelves.fill()
"""


class Clone:
    """A copy of the example project and of the host's overrides; the package itself is the checkout's."""

    def __init__(self, path: Path, redis_url: str | None = None) -> None:
        self.path = path
        for name in ("example_project", "templates", "static"):
            shutil.copytree(CHECKOUT / name, path / name, ignore=shutil.ignore_patterns("var", "__pycache__"))
        shutil.copy(CHECKOUT / "manage.py", path)
        (path / "wurk_django").symlink_to(CHECKOUT / "wurk_django")
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "REDIS_URL")}
        self.env = {**kept, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
        if redis_url:
            self.env["REDIS_URL"] = redis_url

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.path, env=self.env,
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    def work(self) -> None:
        """Run what is queued and due."""
        done = self.python("manage.py", "wurk", "--burst")
        assert done.returncode == 0, done.stderr


class Answer:
    """What a page said."""

    def __init__(self, response: urllib.request.addinfourl | urllib.error.HTTPError) -> None:
        self.status = response.status
        self.url = response.url
        self.body = response.read()
        self.text = self.body.decode("utf-8", "replace")


class Browser:
    """Keeps cookies, follows redirects, sends forms with their token."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def get(self, path: str) -> Answer:
        return self._open(urllib.parse.urljoin(self.root, path), None)

    def post(self, path: str, *, form_on: str | None = None, **fields: str | int) -> Answer:
        """Send the form that the page `form_on` shows (default: that of `path` itself) to `path`."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(form_on or path).text)
        assert token is not None
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        return self._open(urllib.parse.urljoin(self.root, path), data)

    def _open(self, url: str, data: bytes | None) -> Answer:
        try:
            with self._opener.open(url, data, timeout=20) as response:
                return Answer(response)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error)


class Shop:
    """A clone whose site is served."""

    def __init__(self, clone: Clone) -> None:
        self.clone = clone
        done = clone.python("-c", OPEN_SHOP)
        assert done.returncode == 0, done.stderr
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.root = f"http://127.0.0.1:{port}/"
        self._site = subprocess.Popen(
            [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"], cwd=clone.path,
            env=clone.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait_until_open(port)

    def browser(self) -> Browser:
        return Browser(self.root)

    def keeper(self) -> Browser:
        """A browser that has signed in to the admin."""
        browser = self.browser()
        browser.post("/admin/login/", username="keeper", password="keeper", next="/admin/")
        return browser

    def close(self) -> None:
        self._site.terminate()
        self._site.wait(20)

    def _wait_until_open(self, port: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                assert self._site.poll() is None, "the site ended"
                assert time.monotonic() < deadline, "the site did not come up"
                time.sleep(0.02)


@pytest.fixture(scope="module")
def shop(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """An open shop, one for each module."""
    shop = Shop(Clone(tmp_path_factory.mktemp("clone"), redis_server.url))
    yield shop
    shop.close()
