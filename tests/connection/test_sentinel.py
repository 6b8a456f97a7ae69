"""Sentinel: the primary is asked for at every dial, and a server that is none is never written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.connection.conftest import wait_for
from tests.connection.sentinel import Sentinel
from tests.support.servers import RedisServer, _free_port
from wurk_django.connection import Redis, RedisOptions, RetryReport
from wurk_django.errors import DialFailed


@pytest.fixture(scope="module")
def primary() -> Iterator[RedisServer]:
    with RedisServer(config={"repl-diskless-sync-delay": "0"}) as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    with RedisServer(config={"replicaof": f"127.0.0.1 {primary.port}"}) as server:
        with server.client() as client:
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", what="the replica")
        yield server


@pytest.fixture(scope="module")
def sentinel(
    primary: RedisServer, replica: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sentinel]:
    sentinel = Sentinel({"main": primary.port, "stale": replica.port}, tmp_path_factory.mktemp("sentinel"))
    yield sentinel
    sentinel.close()


@pytest.fixture
def dial(make_pool: Callable[..., Redis], sentinel: Sentinel, reports: list[RetryReport]) -> Callable[..., Redis]:
    """A pool that asks the sentinel for the primary of this name."""

    def make(master: str, *more: tuple[str, int], first: bool = False) -> Redis:
        addresses = (("127.0.0.1", sentinel.port), *more)
        return make_pool(
            "redis:///3", reports=reports, sentinels=addresses[::-1] if first else addresses, master=master,
            connect_timeout_s=0.5, read_timeout_s=2.5,
        )  # fmt: skip

    return make


def test_a_dial_finds_the_primary_and_uses_the_database_of_the_address(
    dial: Callable[..., Redis], primary: RedisServer
) -> None:
    pool = dial("main")

    assert pool.execute("ROLE")[0] == b"master"
    pool.execute("SET", "k", "v")

    with primary.client(db=3) as client:
        assert client.get("k") == b"v"


def test_a_replica_is_refused_as_a_failed_dial_and_asked_for_again(
    dial: Callable[..., Redis], reports: list[RetryReport], pauses: list[float], replica: RedisServer
) -> None:
    pool = dial("stale")

    with pytest.raises(DialFailed, match="is slave, not the primary"):
        pool.execute("SET", "k", "v")

    assert [report.retried for report in reports] == [True, True, False]
    assert len(pauses) == 2
    with replica.client() as client:  # nothing of ours stays connected
        wait_for(lambda: not [c for c in client.client_list() if "wurk-django" in c.get("lib-name", "")])


def test_a_sentinel_that_is_down_is_passed_over(dial: Callable[..., Redis]) -> None:
    dead = ("127.0.0.1", _free_port())
    assert dial("main", dead, first=True).execute("PING") == b"PONG"


def test_without_a_sentinel_that_knows_the_name_the_message_says_who_was_asked(
    dial: Callable[..., Redis], sentinel: Sentinel, pauses: list[float]
) -> None:
    dead = _free_port()
    pool = dial("nobody", ("127.0.0.1", dead))

    with pytest.raises(DialFailed) as failed:
        pool.execute("PING")

    assert "no sentinel names the primary of 'nobody'" in str(failed.value)
    assert f"127.0.0.1:{sentinel.port}: knows no 'nobody'" in str(failed.value)
    assert f"127.0.0.1:{dead}: cannot connect" in str(failed.value)


def test_options_without_a_failure_are_plain_data(sentinel: Sentinel) -> None:
    options = RedisOptions("redis://", (("127.0.0.1", sentinel.port),), "main")
    assert options.describe() == "main by 1 sentinels"
    assert options == RedisOptions("redis://", (("127.0.0.1", sentinel.port),), "main")


def swap(sentinel: Sentinel, old: RedisServer, new: RedisServer) -> None:
    """Make `new` the primary, as a failover does, and let the sentinel say so."""
    with old.client() as before, new.client() as after:
        after.execute_command("REPLICAOF", "NO", "ONE")
        before.execute_command("REPLICAOF", "127.0.0.1", new.port)
    sentinel.execute("SENTINEL", "REMOVE", "main")
    sentinel.execute("SENTINEL", "MONITOR", "main", "127.0.0.1", str(new.port), "1")


@pytest.mark.oracle("reliability:C5")
def test_after_a_failover_the_next_write_goes_to_the_new_primary(
    dial: Callable[..., Redis], sentinel: Sentinel, primary: RedisServer, replica: RedisServer, pauses: list[float]
) -> None:
    pool = dial("main")
    pool.execute("SET", "before", 1)
    swap(sentinel, primary, replica)
    try:
        pool.execute("INCR", "after")

        with replica.client(db=3) as new:
            assert new.get("after") == b"1"
        assert pauses == [0.0]
    finally:
        swap(sentinel, replica, primary)
