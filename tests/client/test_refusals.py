"""Pushes that Redis refuses: one clear error with the way out, nothing written, nothing sent again in secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis as redis_py

from tests.client.conftest import Stored
from tests.support.faults import Answer, named
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.client import Client
from wurk_django.errors import RedisRefused

#: What each server in trouble answers, and a part of the way out.
ANSWERS = {
    "OOM": ("OOM command not allowed when used memory > 'maxmemory'.", "raise maxmemory"),
    "READONLY": ("READONLY You can't write against a read only replica.", "name the sentinels"),
    "NOREPLICAS": ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
    "MISCONF": ("MISCONF Redis is configured to save RDB snapshots", "free its disk"),
    "LOADING": ("LOADING Redis is loading the dataset in memory", "Try again"),
}


@pytest.fixture
def through(proxy: Proxy, make_config: Any) -> Client:
    return Client(make_config(proxy.url))


@pytest.mark.oracle("safety:R9", "safety:R10", "safety:R11")
@pytest.mark.parametrize("at", [None, 2_000_000_000])
@pytest.mark.parametrize("code", ANSWERS)
def test_the_error_of_a_refused_push_says_what_was_answered_and_what_to_do(
    code: str, at: float | None, through: Client, proxy: Proxy, stored: Stored
) -> None:
    answer, way_out = ANSWERS[code]
    proxy.on(named("SADD", "LPUSH", "ZADD"), Answer(answer), times=None)

    with pytest.raises(RedisRefused) as refused:
        through.push({"class": "Foo", "args": [], **({"at": at} if at else {})})

    message = str(refused.value)
    assert refused.value.code == code
    assert message.startswith(answer)
    assert "\n" not in message
    assert way_out in message
    assert stored.keys() == []


def test_another_refusal_is_told_as_it_is(through: Client, proxy: Proxy) -> None:
    proxy.on(named("LPUSH"), Answer("WRONGTYPE Operation against a key"))
    with pytest.raises(RedisRefused) as refused:
        through.push({"class": "Foo", "args": []})
    assert str(refused.value) == "WRONGTYPE Operation against a key"


# --- real servers in trouble ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def refuse(server: RedisServer, code: str) -> None:
    with server.client() as client:
        if code == "READONLY":
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        elif code == "NOREPLICAS":
            client.config_set("min-replicas-to-write", 1)
        else:
            client.config_set("maxmemory", 1)


def accept(server: RedisServer) -> None:
    with server.client() as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("min-replicas-to-write", 0)
        client.config_set("maxmemory", 0)


@pytest.mark.oracle("safety:R9", "safety:R10", "safety:R11", "reports:P09")
@pytest.mark.parametrize("code", ["OOM", "READONLY", "NOREPLICAS"])
def test_a_server_in_trouble_takes_no_push_and_takes_them_again_afterwards(
    code: str, server: RedisServer, make_config: Callable[..., Any]
) -> None:
    client = Client(make_config(server.url))
    client.push({"class": "Foo", "args": [1]})
    refuse(server, code)

    for item in ({}, {"at": 2_000_000_000}):
        with pytest.raises(RedisRefused) as refused:
            client.push({"class": "Foo", "args": [2], **item})
        assert refused.value.code == code
    with pytest.raises(RedisRefused):
        client.push_bulk({"class": "Foo", "args": [[3], [4]]})

    accept(server)
    client.push({"class": "Foo", "args": [5]})
    with server.client() as raw:
        assert [redis_args(item) for item in raw.lrange("queue:default", 0, -1)] == [[5], [1]]
        assert raw.zcard("schedule") == 0


def redis_args(raw: bytes) -> Any:
    return json.loads(raw)["args"]


def test_a_push_after_a_refusal_uses_a_connection_that_is_in_step(
    through: Client, proxy: Proxy, stored: Stored, redis: redis_py.Redis
) -> None:
    proxy.on(named("LPUSH"), Answer("OOM no"))
    with pytest.raises(RedisRefused):
        through.push({"class": "Foo", "args": [1]})
    through.push({"class": "Foo", "args": [2]})
    assert [job["args"] for job in stored.queue()] == [[2]]
