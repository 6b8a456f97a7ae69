"""A worker that cannot start: exit code 1 and one message that says what is wrong and what to do."""

from __future__ import annotations

import socket

import pytest

from tests.crash.harness import Stage
from tests.support.faults import Answer, named
from tests.support.processes import PythonProcess
from tests.support.servers import RedisServer

pytestmark = pytest.mark.crash


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode())


def message_of(worker: PythonProcess) -> str:
    """The one line that a worker has left, which ended with 1."""
    assert worker.wait() == 1, worker.output
    lines = worker.output.strip().splitlines()
    assert len(lines) == 1, worker.output
    return lines[0]


def test_without_a_redis_the_message_names_its_address_and_the_setting(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    message = message_of(stage.worker(url=f"redis://:secret@127.0.0.1:{port}/0"))

    assert f"127.0.0.1:{port}" in message
    assert "REDIS_URL" in message
    assert "secret" not in message


@pytest.mark.oracle("safety:S-64")
def test_a_redis_that_evicts_is_refused_with_the_way_out(redis_server: RedisServer, stage: Stage) -> None:
    with RedisServer(config={"maxmemory-policy": "allkeys-lru"}) as server:
        message = message_of(stage.worker(url=server.url))

    assert "maxmemory-policy allkeys-lru" in message
    assert "noeviction" in message


def test_a_cluster_is_refused_with_the_way_out(redis_server: RedisServer, stage: Stage) -> None:
    with RedisServer(config={"cluster-enabled": "yes"}) as server:
        message = message_of(stage.worker(url=server.url))

    assert "Redis Cluster" in message
    assert "Sentinel" in message


@pytest.mark.oracle("safety:S-64")
@pytest.mark.parametrize(
    ("info", "told"),
    [
        ("redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\n", "Redis 6.2.14"),
        ("redis_version:7.2.4\r\nvalkey_version:7.1.0\r\nmaxmemory_policy:noeviction\r\n", "Valkey 7.1.0"),
    ],
)
def test_an_old_server_is_refused_with_the_version_that_is_needed(info: str, told: str, stage: Stage) -> None:
    stage.proxy.on(named("INFO"), Answer(bulk(info)), times=None)

    message = message_of(stage.worker())

    assert told in message
    assert "or newer" in message


def test_a_wrong_setting_is_named_and_nothing_is_claimed(stage: Stage) -> None:
    jid = stage.push("Work")

    message = message_of(stage.worker(CONCURENCY=5))

    assert "'CONCURENCY'" in message
    assert "'CONCURRENCY'" in message
    assert stage.where(jid) == ["queue:default"]
