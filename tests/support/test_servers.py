"""The servers of the tests must start, suffer and vanish as asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis as redis_py

from tests.support.servers import RedisServer

ROOT = Path(__file__).parents[2]
OWNER = """
from tests.support.servers import RedisServer
server = RedisServer().start()
print(server.pid, server.directory, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def _program(redis_server: RedisServer) -> None:
    """Skips where there is no server program."""


def test_a_killed_server_comes_back_at_its_port_with_its_append_only_data() -> None:
    with RedisServer(append_only=True) as server, server.client() as client:
        client.lpush("q", "job")
        port, pid = server.port, server.pid

        server.restart(kill=True)

        assert (server.port, server.pid != pid) == (port, True)
        assert client.lrange("q", 0, -1) == [b"job"]
        server.restart(empty=True)
        assert client.llen("q") == 0


def test_a_paused_server_keeps_its_connections_and_answers_after_resume() -> None:
    with RedisServer() as server, server.client(timeout=0.1) as client:
        client.ping()
        server.pause()
        with pytest.raises(redis_py.TimeoutError):
            client.ping()
        server.resume()
        assert client.ping()
        server.pause()
        server.stop()
        assert not server.is_running()


def test_directives_are_set_at_start_and_later() -> None:
    with RedisServer(config={"maxmemory": "50mb"}) as server, server.client() as client:
        assert client.config_get("maxmemory")["maxmemory"] == str(50 << 20)
        server.config_set(maxmemory="60mb", list_max_listpack_size=64)
        assert client.config_get("maxmemory")["maxmemory"] == str(60 << 20)


def test_closing_leaves_no_process_and_no_files() -> None:
    server = RedisServer().start()
    server.close()
    assert not server.is_running()
    assert not server.directory.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_dies_with_a_killed_test_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        os.kill(owner.pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while Path(f"/proc/{pid}/cwd").exists():
            assert time.monotonic() < deadline, "it lives on"
            time.sleep(0.005)
    for path in sorted(Path(directory).iterdir()):
        path.unlink()
    Path(directory).rmdir()
