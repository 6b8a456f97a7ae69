"""Pools: one connection a block, the last used first, none that is broken, none kept that is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis as redis_py

from tests.connection.conftest import wait_for
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.connection import Redis, Session
from wurk_django.errors import DialFailed, RedisUnavailable


def connection_number(session: Session) -> int:
    number: int = session.execute("CLIENT", "ID")
    return number


def test_one_connection_serves_block_after_block(pool: Redis) -> None:
    assert len({pool.run(connection_number) for _ in range(20)}) == 1


def test_a_pool_opens_nothing_before_it_is_used(proxy: Proxy, make_pool: Callable[..., Redis]) -> None:
    pool = make_pool(proxy.url)
    assert proxy.accepted == 0
    pool.execute("PING")
    assert proxy.accepted == 1


def test_blocks_within_blocks_have_connections_of_their_own(pool: Redis) -> None:
    def outer(session: Session) -> tuple[int, int, int]:
        return connection_number(session), pool.run(connection_number), connection_number(session)

    first, inner, again = pool.run(outer)

    assert first == again != inner


def test_threads_share_no_more_connections_than_the_pool_has(redis_url: str, make_pool: Callable[..., Redis]) -> None:
    pool = make_pool(redis_url, size=3)
    numbers: set[int] = set()
    wrong: list[object] = []

    def work(tag: str) -> None:
        def block(session: Session) -> None:
            numbers.add(connection_number(session))
            for count in range(5):
                if session.execute("ECHO", f"{tag} {count}") != f"{tag} {count}".encode():
                    wrong.append(tag)

        for _ in range(20):
            pool.run(block)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert wrong == []
    assert 1 <= len(numbers) <= 3


def test_a_waiting_checkout_gets_the_connection_that_comes_free(
    redis_url: str, make_pool: Callable[..., Redis]
) -> None:
    pool = make_pool(redis_url, size=1)
    inside, leave = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        inside.set()
        leave.wait(10)

    holder = threading.Thread(target=lambda: pool.run(hold))
    holder.start()
    inside.wait(10)
    threading.Timer(0.1, leave.set).start()

    assert pool.execute("PING") == b"PONG"

    holder.join(10)


@pytest.mark.parametrize("ending", ["return", "refusal", "error", "outage"])
def test_every_slot_comes_back_however_a_block_ends(
    ending: str, proxy: Proxy, make_pool: Callable[..., Redis], pauses: list[float]
) -> None:
    pool = make_pool(proxy.url, size=2)

    def block(session: Session) -> None:
        if ending == "refusal":
            session.execute("NONSENSE")
        if ending == "error":
            raise KeyError
        if ending == "outage":
            proxy.reset_all()
        session.execute("PING")

    for _ in range(10):
        with suppress(Exception):
            pool.run(block)

    assert pool.run(lambda outer: pool.execute("PING")) == b"PONG"


def test_a_connection_that_the_server_closed_is_replaced_without_an_error(pool: Redis, redis: redis_py.Redis) -> None:
    number = pool.run(connection_number)
    redis.client_kill_filter(_id=number)
    wait_for(lambda: number not in [int(client["id"]) for client in redis.client_list()])

    assert pool.run(connection_number) != number


def test_a_server_that_restarted_costs_no_error(make_pool: Callable[..., Redis]) -> None:
    with RedisServer() as server:
        pool = make_pool(server.url)
        assert pool.execute("INCR", "n") == 1
        server.restart(kill=True)
        assert pool.execute("INCR", "n") == 1


def test_a_connection_with_an_unread_reply_answers_no_other_question(pool: Redis) -> None:
    def leave_a_reply(session: Session) -> int:
        number = connection_number(session)
        session._send(b"*2\r\n$4\r\nECHO\r\n$5\r\nstray\r\n")
        deadline = time.monotonic() + 5
        while not session._connection._sock.recv(1, 0x2 | 0x40):  # peek, do not wait
            assert time.monotonic() < deadline
        return number

    def arrived(session: Session) -> int:
        try:
            return leave_a_reply(session)
        except BlockingIOError:  # the reply is still on its way
            wait_for(lambda: _readable(session))
            return 0

    pool.run(arrived)

    assert pool.execute("ECHO", "mine") == b"mine"


def _readable(session: Session) -> bool:
    try:
        return bool(session._connection._sock.recv(1, 0x2 | 0x40))
    except BlockingIOError:
        return False


def test_a_closed_pool_gives_no_connection_and_closes_those_in_use(
    pool: Redis, redis: redis_py.Redis, pauses: list[float]
) -> None:
    numbers = set(pool.run(lambda session: (connection_number(session), pool.run(connection_number))))

    def block(session: Session) -> None:
        pool.close()
        session.execute("PING")

    with pytest.raises(RedisUnavailable):
        pool.run(block)
    with pytest.raises(DialFailed, match="'test' is closed"):
        pool.execute("PING")
    wait_for(lambda: not numbers & {int(client["id"]) for client in redis.client_list()})


def test_idle_connections_are_closed_and_fresh_ones_stay(
    pool: Redis, redis: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("wurk_django.connection.time.monotonic", lambda: now[0])
    old = pool.run(lambda session: (connection_number(session), pool.run(connection_number)))
    now[0] += 50
    fresh = pool.run(connection_number)
    now[0] += 20
    monkeypatch.undo()

    monkeypatch.setattr("wurk_django.connection.time.monotonic", lambda: now[0])
    pool.close_idle(60)
    monkeypatch.undo()

    [gone] = set(old) - {fresh}
    wait_for(lambda: gone not in [int(client["id"]) for client in redis.client_list()])
    assert pool.run(connection_number) == fresh


def test_a_pool_says_what_it_is_and_nothing_secret(make_pool: Callable[..., Redis]) -> None:
    pool = make_pool("redis://user:secret@example.invalid:6379/2")
    assert "secret" not in repr(pool)
    assert "user" not in repr(pool)
    assert "example.invalid:6379/2" in repr(pool)
    assert "'test' of 10" in repr(pool)
