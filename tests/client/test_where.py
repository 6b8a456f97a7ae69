"""Which Redis a push goes to: explicit, `via` block, the class's, the configuration's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from tests.support.servers import RedisServer
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import Redis, RedisOptions
from wurk_django.errors import InvalidJob
from wurk_django.jobs import Job

ITEM: dict[str, Any] = {"class": "Foo", "args": []}


@pytest.fixture
def pools(redis: redis_py.Redis, redis_server: RedisServer) -> Iterator[dict[int, Redis]]:
    """Pools for the databases 1 to 4 of the server; the configuration's is 0."""
    pools = {
        number: Redis(RedisOptions(f"redis://127.0.0.1:{redis_server.port}/{number}"), name=str(number))
        for number in range(1, 5)
    }
    yield pools
    for pool in pools.values():
        pool.close()


@pytest.fixture
def found(redis_server: RedisServer) -> Any:
    """Where the last push went: the number of the database that holds a job; emptied by asking."""

    def ask() -> list[int]:
        holding = []
        for number in range(5):
            with redis_server.client(db=number) as client:
                if client.delete("queue:default", "queues") == 2:
                    holding.append(number)
        return holding

    return ask


def test_the_nearest_naming_wins(client: Client, config: Config, pools: dict[int, Redis], found: Any) -> None:
    class Sharded(Job, name="Sharded", pool=pools[1]):
        def perform(self) -> None: ...

    item = {**ITEM, "class": Sharded}

    client.push(ITEM)
    assert found() == [0]
    client.push(item)
    assert found() == [1]
    client.push({**item, "pool": pools[2]})
    assert found() == [2]
    with Client.via(pools[3]):
        client.push({**item, "pool": pools[2]})
        assert found() == [3]
        client.push_bulk({**item, "args": [[]]})
        assert found() == [3]
        Client(config, pools[4]).push(item)
        assert found() == [4]
    Sharded.perform_async()
    assert found() == [1]
    Sharded.set(pool=pools[2]).perform_async()
    assert found() == [2]


@pytest.mark.oracle("core:D4")
def test_via_blocks_nest_and_the_outer_is_restored_after_an_error(
    client: Client, pools: dict[int, Redis], found: Any
) -> None:
    with Client.via(pools[1]):
        with pytest.raises(KeyError), Client.via(pools[2]):
            client.push(ITEM)
            assert found() == [2]
            raise KeyError
        client.push(ITEM)
        assert found() == [1]
    client.push(ITEM)
    assert found() == [0]


def test_via_nothing_is_an_error(client: Client) -> None:
    with pytest.raises(InvalidJob, match="via"), Client.via(None):
        pass


def test_via_holds_for_its_own_thread_only(client: Client, pools: dict[int, Redis], found: Any) -> None:
    def elsewhere() -> None:
        client.push(ITEM)

    with Client.via(pools[1]):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(10)

    assert found() == [0]


def test_via_copies_the_address_of_a_redis_py_client_and_leaves_the_client_alone(
    client: Client, redis_server: RedisServer, found: Any, redis: redis_py.Redis
) -> None:
    with redis_server.client(db=2) as other:
        with Client.via(other):
            client.push(ITEM)
        assert found() == [2]
        assert other.ping()


def test_the_middleware_is_given_the_pool_that_is_used(
    client: Client, config: Config, pools: dict[int, Redis], found: Any
) -> None:
    seen: list[Any] = []

    class Note:
        def call(self, job_class: Any, payload: Any, queue: str, redis: Any, call_next: Any) -> Any:
            seen.append(redis)
            return call_next()

    config.client_middleware.add(Note)
    client.push(ITEM)
    with Client.via(pools[1]):
        client.push(ITEM)
        client.push_bulk({**ITEM, "args": [[]]})

    assert seen == [config.redis, pools[1], pools[1]]
    assert found() == [0, 1]
