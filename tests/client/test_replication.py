"""Pushes that wait for replicas: same connection, same round trip, and an error that says that the job is there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py

from tests.client.conftest import Stored
from tests.support.faults import Answer, LoseReply, anything, named
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django import buffer, jobs
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob, NotReplicated, RedisRefused, RedisUnavailable

DEADLINE_S = 10.0
AT = 2_000_000_000


@pytest.fixture(scope="module")
def primary() -> Iterator[RedisServer]:
    with RedisServer(config={"repl-diskless-sync-delay": "0"}) as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    with RedisServer(config={"replicaof": f"127.0.0.1 {primary.port}"}) as server:
        deadline = time.monotonic() + DEADLINE_S
        with server.client() as client:
            while client.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline, "the replica did not come up"
                time.sleep(0.01)
        with primary.client() as client:  # it counts the replica only once that has reported to it
            while not client.execute_command("WAIT", 1, 100):
                assert time.monotonic() < deadline, "the replica did not report"
        yield server


@pytest.fixture
def paired(primary: RedisServer, replica: RedisServer, make_config: Callable[..., Config]) -> Iterator[Client]:
    """A client of a primary that has a replica."""
    with primary.client() as client:
        client.flushall()
    yield Client(make_config(primary.url, push_wait_timeout=1))
    replica.resume()


@pytest.fixture
def through(proxy: Proxy, make_config: Callable[..., Config]) -> Client:
    """A client of a Redis without replicas, behind the proxy."""
    return Client(make_config(proxy.url, push_wait_timeout=0.02))


def sent(proxy: Proxy) -> list[str]:
    return [command.name for command in proxy.commands if anything(command)]


@pytest.mark.parametrize(("item", "command"), [({}, "LPUSH"), ({"at": AT}, "ZADD")])
def test_a_push_that_waits_is_one_round_trip_on_one_connection(
    item: dict[str, Any], command: str, through: Client, proxy: Proxy
) -> None:
    through.config.redis.execute("PING")
    proxy.clear()

    with pytest.raises(NotReplicated):
        through.push({"class": "Foo", "args": [], "wait_replicas": 1, **item})

    commands = [command for command in proxy.commands if anything(command)]
    assert [each.name for each in commands][-2:] == [command, "WAIT"]
    assert tuple(commands[-1]) == (b"WAIT", b"1", b"20")
    assert len({each.round_trip for each in commands}) == 1
    assert len({each.connection for each in commands}) == 1


def test_a_push_that_does_not_wait_sends_what_it_always_sent(through: Client, proxy: Proxy) -> None:
    through.push({"class": "Foo", "args": []})
    through.push({"class": "Foo", "args": [], "wait_replicas": 0})
    through.push({"class": "Foo", "args": [], "at": AT})
    assert sent(proxy) == ["SADD", "LPUSH", "SADD", "LPUSH", "ZADD"]
    assert proxy.round_trips - sum(not anything(command) for command in proxy.commands) <= 3


@pytest.mark.parametrize("item", [{}, {"at": AT}])
def test_a_push_returns_when_a_replica_has_the_job(item: dict[str, Any], paired: Client, replica: RedisServer) -> None:
    jid = paired.push({"class": "Foo", "args": [], "wait_replicas": 1, **item})

    with replica.client() as client:
        found = client.zrange("schedule", 0, -1) if item else client.lrange("queue:default", 0, -1)
        assert [json.loads(raw)["jid"] for raw in found] == [jid]


@pytest.mark.parametrize("item", [{}, {"at": AT}])
def test_with_too_few_replicas_the_error_carries_the_jid_and_says_that_the_job_is_there(
    item: dict[str, Any], paired: Client, primary: RedisServer, replica: RedisServer
) -> None:
    replica.pause()

    with pytest.raises(NotReplicated, match=r"0 of 1 replicas confirmed within 1 s") as missing:
        paired.push({"class": "Foo", "args": [], "wait_replicas": 1, **item})

    assert not isinstance(missing.value, RedisUnavailable)  # who catches that may push again
    [jid] = missing.value.jids
    assert jid in str(missing.value)
    with primary.client() as client:
        found = client.zrange("schedule", 0, -1) if item else client.lrange("queue:default", 0, -1)
        assert [json.loads(raw)["jid"] for raw in found] == [jid]


def test_a_bulk_push_waits_once_a_round_trip_and_names_all_its_jobs(
    through: Client, proxy: Proxy, stored: Stored
) -> None:
    with pytest.raises(NotReplicated) as missing:
        through.push_bulk({"class": "Foo", "args": [[number] for number in range(5)], "wait_replicas": 2})

    assert missing.value.jids == [job["jid"] for job in stored.queue()]
    assert sent(proxy).count("WAIT") == 1
    assert "0 of 2 replicas" in str(missing.value)


def test_how_many_is_a_setting_and_an_option_of_class_and_push(
    make_config: Callable[..., Config], proxy: Proxy, config: Config
) -> None:
    class Careful(jobs.Job, name="Careful", wait_replicas=2):
        def perform(self) -> None: ...

    client = Client(make_config(proxy.url, push_wait_replicas=1, push_wait_timeout=0.001))

    for item in ({"class": "Foo"}, {"class": Careful}, {"class": Careful, "wait_replicas": 3}):
        with pytest.raises(NotReplicated):
            client.push({"args": [], **item})
    client.push({"class": Careful, "args": [], "wait_replicas": 0})

    assert [command[1] for command in proxy.commands if command.name == "WAIT"] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("wrong", [-1, "1", 1.5, True])
def test_a_wrong_number_is_refused_before_anything_is_sent(wrong: Any, client: Client, stored: Stored) -> None:
    with pytest.raises(InvalidJob, match="wait_replicas"):
        client.push({"class": "Foo", "args": [], "wait_replicas": wrong})
    assert stored.keys() == []


def test_when_only_the_answer_of_the_wait_is_lost_the_jobs_are_known_to_be_there(
    through: Client, proxy: Proxy, stored: Stored
) -> None:
    proxy.on(named("WAIT"), LoseReply())

    with pytest.raises(NotReplicated):
        through.push({"class": "Foo", "args": [], "wait_replicas": 1})

    assert len(stored.queue()) == 1


@pytest.mark.parametrize("command", ["SADD", "LPUSH"])
def test_when_the_answer_of_the_push_is_lost_that_is_the_error(command: str, through: Client, proxy: Proxy) -> None:
    proxy.on(named(command), LoseReply())
    with pytest.raises(RedisUnavailable):
        through.push({"class": "Foo", "args": [], "wait_replicas": 1})


@pytest.mark.parametrize("item", [{}, {"at": AT}])
def test_a_refused_push_is_a_refusal_and_waits_for_nobody(item: dict[str, Any], through: Client, proxy: Proxy) -> None:
    proxy.on(named("SADD", "LPUSH", "ZADD"), Answer("OOM no"), times=None)
    with pytest.raises(RedisRefused, match="OOM"):
        through.push({"class": "Foo", "args": [], "wait_replicas": 1, **item})


def test_a_push_that_waits_is_not_kept_in_an_outage_for_nobody_could_confirm_it(
    make_config: Callable[..., Config], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(proxy.url, reliable_push=True, reliable_push_drain_interval=0)
    kept = buffer.install(config)
    config.redis._attempts = 1
    proxy.refuse = True

    with pytest.raises(RedisUnavailable):
        Client(config).push({"class": "Foo", "args": [], "wait_replicas": 1})

    assert len(kept) == 0


def test_a_written_job_that_lacks_replicas_is_not_kept(
    make_config: Callable[..., Config], proxy: Proxy, redis: redis_py.Redis
) -> None:
    config = make_config(proxy.url, push_wait_timeout=0.01)
    kept = buffer.install(config)
    with pytest.raises(NotReplicated):
        Client(config).push({"class": "Foo", "args": [], "wait_replicas": 1})
    assert len(kept) == 0
    assert redis.llen("queue:default") == 1
