"""The real peer: Sidekiq 6.4 as a client, as a worker process and as its Web UI, each in its own Ruby process.

The Ruby side is in `tests/interop/`: `push.rb`, `worker.rb` and `config.ru`. Every process made here is ended by its
own pid, and ends itself when the test process that made it is gone.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import pytest
import redis

SCRIPTS = Path(__file__).resolve().parent.parent / "interop"
NEEDED_VERSION = "6.4."
BOOT_DEADLINE_S = 40.0
ANSWER_DEADLINE_S = 30.0
STOP_DEADLINE_S = 15.0
MISSING = "The interop tests need Sidekiq 6.4 for Ruby (Debian: apt install ruby-sidekiq puma): {}."
T = TypeVar("T")


class PeerFailed(AssertionError):
    """A peer reported an error, did not start or did not answer in time."""


@cache
def missing_ruby() -> str | None:
    """Say what is missing for the real peer, or None when all is there."""
    for program in ("ruby", "sidekiq", "puma"):
        if shutil.which(program) is None:
            return f"no `{program}` on PATH"
    script = "require 'sidekiq/web'; print Sidekiq::VERSION"
    found = subprocess.run(["ruby", "-e", script], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return f"`require 'sidekiq/web'` fails: {found.stderr.strip()[:300]}"
    return None if found.stdout.startswith(NEEDED_VERSION) else f"found Sidekiq {found.stdout}"


def require_ruby() -> None:
    """Skip the calling test where there is no Ruby peer; in CI (env `CI`) fail it instead."""
    reason = missing_ruby()
    if reason is None:
        return
    if os.environ.get("CI"):
        pytest.fail(MISSING.format(reason), pytrace=False)
    pytest.skip(MISSING.format(reason))


def wait_for(check: Callable[[], T], what: str, deadline_s: float = BOOT_DEADLINE_S) -> T:
    """Ask again until the answer is truthy, and return it; past the deadline say what did not come."""
    ends = time.monotonic() + deadline_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > ends:
            raise PeerFailed(f"waited {deadline_s} s in vain for {what}; last seen: {found!r}")
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def ruby_environment(url: str, **more: str) -> dict[str, str]:
    """The environment of a Ruby child: its Redis, UTF-8, and no options of the host's Ruby."""
    mode = {"REDIS_URL": url, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "RACK_ENV": "production"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("RUBYOPT", "REDIS_PROVIDER")}
    return {**inherited, **mode, "INTEROP_EXIT_WITH_PARENT": "1", **more}


class PeerProcess:
    """One child process with its log in a temporary file. Context manager; `stop` is safe to call twice."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path = SCRIPTS, answers: bool = False) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in stop)
        self._last_log = ""
        self._process = subprocess.Popen(
            list(command), cwd=cwd, env=env, bufsize=0, stdin=subprocess.PIPE, stderr=self._log,
            stdout=subprocess.PIPE if answers else self._log,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def log(self) -> str:
        """What it wrote so far; after `stop` what it had written."""
        if self._log.closed:
            return self._last_log
        return os.pread(self._log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait for the process to end by itself; its exit code."""
        return self._process.wait(deadline_s)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end, then make it end."""
        if self._log.closed:
            return
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._last_log = self.log
        self._log.close()

    def _wait_until_up(self, check: Callable[[], T], what: str) -> T:
        def up() -> T | bool:
            if not self.alive:
                raise PeerFailed(f"{what} ended with {self.returncode}:\n{self.log[-2000:]}")
            return check()

        try:
            return wait_for(up, what)  # type: ignore[return-value]  # False is never returned, only asked again
        except PeerFailed:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class PeerClient(PeerProcess):
    """A client in one long-lived process: a JSON command a line in, a JSON answer a line out."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path = SCRIPTS) -> None:
        super().__init__(command, env, cwd, answers=True)

    def call(self, op: str, **fields: Any) -> Any:  # JSON in, JSON out
        """Run one operation of the script. Raises PeerFailed with what it answered."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise PeerFailed("the client has no pipes")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        answer = json.loads(self._line(stdout.fileno()))
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer["ok"]

    def _line(self, descriptor: int) -> bytes:
        line, ends = b"", time.monotonic() + ANSWER_DEADLINE_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
            chunk = os.read(descriptor, 1 << 16) if ready else b""
            if not chunk:
                raise PeerFailed(f"the client gave no answer:\n{self.log[-2000:]}")
            line += chunk
        return line

    def push(self, item: dict[str, Any]) -> str:
        """`Client.push(item)`: any hash, the class as a string."""
        jid: str = self.call("push", item=item)
        return jid

    def push_bulk(self, item: dict[str, Any]) -> list[str]:
        """`Client.push_bulk(item)`: one hash, `args` a list of argument lists."""
        jids: list[str] = self.call("push_bulk", item=item)
        return jids

    def perform_async(self, job: str, *args: Any, **options: Any) -> str:
        """`Job.set(options).perform_async(*args)` of a job that both languages declare."""
        jid: str = self.call("perform_async", args=args, options=options, **{"class": job})
        return jid

    def perform_in(self, job: str, interval_s: float, *args: Any) -> str:
        jid: str = self.call("perform_in", interval=interval_s, args=args, **{"class": job})
        return jid

    def perform_at(self, job: str, at_s: float, *args: Any) -> str:
        jid: str = self.call("perform_at", at=at_s, args=args, **{"class": job})
        return jid

    def perform_bulk(self, job: str, args: list[list[Any]], **options: Any) -> list[str]:
        jids: list[str] = self.call("perform_bulk", args=args, options=options, **{"class": job})
        return jids


class RubyClient(PeerClient):
    """Sidekiq's client and data API: the operations of `push.rb`."""

    def __init__(self, url: str) -> None:
        super().__init__(["ruby", "push.rb"], ruby_environment(url))

    def promote(self) -> None:
        """One pass of Sidekiq's scheduler: pop what is due from `retry` and `schedule`, push it."""
        self.call("promote")

    def find(self, set_name: str, jid: str) -> dict[str, Any]:
        """One entry of `retry`, `schedule` or `dead` as Sidekiq's data API reads it."""
        row: dict[str, Any] = self.call("find", set=set_name, jid=jid)
        return row


class PeerWorker(PeerProcess):
    """A worker process of either language, in the process set when the constructor returns; `identity` is its name."""

    def __init__(self, command: Sequence[str], url: str, env: dict[str, str], cwd: Path = SCRIPTS) -> None:
        super().__init__(command, env, cwd)
        with contextlib.closing(redis.Redis.from_url(url, decode_responses=True)) as store:
            self.identity = self._wait_until_up(lambda: self._own_identity(store), f"the worker `{command[0]}`")

    def _own_identity(self, store: redis.Redis) -> str | None:
        names = [str(name) for name in store.smembers("processes")]
        return next((name for name in names if f":{self.pid}:" in name), None)


class RubyWorker(PeerWorker):
    """A real `sidekiq` worker process over the jobs of `worker.rb`."""

    def __init__(
        self, url: str, queues: Sequence[str] = ("default",), concurrency: int = 2, timeout_s: int = 5
    ) -> None:
        flags = [part for queue in queues for part in ("-q", queue)]
        command = ["sidekiq", "-r", "./worker.rb", "-c", str(concurrency), "-t", str(timeout_s), *flags]
        super().__init__(command, url, ruby_environment(url))


@dataclass
class Form:
    """One form of a page: what a browser would send when one of its buttons is pressed."""

    action: str
    hidden: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[tuple[str, str]] = field(default_factory=list)
    buttons: dict[str, str] = field(default_factory=dict)

    def holds(self, text: str) -> bool:
        return any(text in value for _, value in (*self.hidden, *self.boxes))


@dataclass(frozen=True)
class Page:
    """An answer of the Web UI: status, HTML and, of a redirect, where it leads."""

    status: int
    html: str
    location: str | None = None

    @property
    def forms(self) -> list[Form]:
        return _FormReader(self.html).forms

    @property
    def text(self) -> str:
        """The words of the page without its tags."""
        bare = re.sub(r"<(script|style).*?</\1>", " ", self.html, flags=re.S)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", bare)).split())

    def row(self, needle: str) -> str:
        """The words of the one table row that holds `needle` (in its text or its attributes)."""
        found = [row for row in re.findall(r"<tr\b.*?</tr>", self.html, flags=re.S) if needle in html.unescape(row)]
        if len(found) != 1:
            raise AssertionError(f"{len(found)} rows hold {needle!r} on:\n{self.text}")
        return Page(self.status, found[0]).text

    def count(self, name: str) -> int:
        """A number of the summary bar: Processed, Failed, Busy, Enqueued, Retries, Scheduled, Dead."""
        found = re.search(rf'id="txt{name}" class="count">([\d,]+)<', self.html)
        if found is None:
            raise AssertionError(f"no summary count {name} on the page")
        return int(found[1].replace(",", ""))


class _FormReader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", "")))
        elif tag in ("input", "button") and self.forms and "name" in given:
            name, value, kind = given["name"], given.get("value", ""), given.get("type")
            if kind == "submit":
                self.forms[-1].buttons[name] = value
            else:
                (self.forms[-1].boxes if kind == "checkbox" else self.forms[-1].hidden).append((name, value))


class RubyWeb(PeerProcess):
    """Sidekiq's own Web UI under puma: `get` reads a page, `press` presses a button of it as a browser would."""

    def __init__(self, url: str) -> None:
        self.port = free_port()
        command = ["puma", "--bind", f"tcp://127.0.0.1:{self.port}", "--threads", "1:2", "config.ru"]
        super().__init__(command, ruby_environment(url, INTEROP_SESSION_SECRET=os.urandom(32).hex()))
        self._cookie = ""
        self._wait_until_up(self._listening, "the Sidekiq Web UI")

    def _listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def get(self, path: str) -> Page:
        return self._request("GET", path, None)

    def press(self, path: str, button: str, holding: str | None = None, action: str | None = None) -> Page:
        """Open `path`, press `button`, and return where that led.

        The form is the first that has such a button and, where given, an input value with `holding` in it (a jid, an
        identity) and an `action` ending so. Of the check boxes only those that hold `holding` are ticked.
        """
        page = self.get(path)
        for form in page.forms:
            fits = button in form.buttons and (holding is None or form.holds(holding))
            if fits and (action is None or form.action.endswith(action)):
                ticked = [(name, value) for name, value in form.boxes if holding is not None and holding in value]
                sent = [*form.hidden, *ticked, (button, form.buttons[button])]
                answer = self._request("POST", form.action or path, urlencode(sent))
                return self.get(answer.location) if answer.location else answer
        raise AssertionError(f"no button {button!r} with {holding!r} on {path} ({page.status}):\n{page.text}")

    def _request(self, method: str, path: str, body: str | None) -> Page:
        headers = {"Cookie": self._cookie} if self._cookie else {}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_DEADLINE_S)) as conn:
            conn.request(method, path, body, headers)
            answer = conn.getresponse()
            cookie = answer.getheader("Set-Cookie")
            if cookie:
                self._cookie = cookie.split(";")[0]
            location = answer.getheader("Location")
            return Page(answer.status, answer.read().decode(), location and _path_of(location))


def _path_of(location: str) -> str:
    return re.sub(r"^https?://[^/]+", "", location)
