"""Commands and their replies: packing, pipelines, transactions, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import anything
from tests.support.proxy import Proxy
from wurk_django import connection, session
from wurk_django.connection import Redis, Session
from wurk_django.errors import RedisRefused

arguments = st.binary() | st.text(st.characters(codec="utf-8")) | st.integers() | st.floats(allow_nan=False)


def test_a_command_is_packed_as_redis_reads_it() -> None:
    packed = b"*5\r\n$3\r\nSET\r\n$2\r\n\xc3\xa9\r\n$2\r\n\xff\x00\r\n$2\r\n-5\r\n$3\r\n1.5\r\n"
    assert connection.pack("SET", "é", b"\xff\x00", -5, 1.5) == packed


@given(st.lists(arguments, min_size=1))
def test_with_and_without_hiredis_the_bytes_are_the_same(given: list[Any]) -> None:
    fast = connection.pack(*given)
    packer, session._pack_fast = session._pack_fast, None
    try:
        assert connection.pack(*given) == fast
    finally:
        session._pack_fast = packer


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_written_so_that_it_reads_back_the_same(value: float) -> None:
    text = connection.pack("X", value).split(b"\r\n")[4]
    assert float(text) == value
    assert text == repr(value).encode()


def test_replies_are_bytes_whatever_they_hold(redis: redis_py.Redis, pool: Redis) -> None:
    pool.execute("SET", "k", b"\xff\xfe")
    assert pool.execute("GET", "k") == b"\xff\xfe"
    pool.execute("ZADD", "z", 1.5, "é")
    assert pool.execute("ZRANGE", "z", 0, -1, "WITHSCORES") == ["é".encode(), b"1.5"]
    assert pool.execute("GET", "missing") is None


def test_a_pipeline_is_one_round_trip_and_keeps_refusals_in_their_places(proxy: Proxy, through: Redis) -> None:
    through.execute("PING")
    proxy.clear()

    replies = through.pipeline([("SET", "k", 1), ("LPUSH", "k", 2), ("NONSENSE",), ("INCR", "k")])

    assert replies[0] == b"OK"
    assert replies[3] == 2
    assert [(type(reply), reply.code) for reply in replies[1:3]] == [(RedisRefused, "WRONGTYPE"), (RedisRefused, "ERR")]
    assert proxy.round_trips == 1


def test_an_empty_pipeline_sends_nothing(proxy: Proxy, through: Redis) -> None:
    assert through.pipeline([]) == []
    assert [command for command in proxy.commands if anything(command)] == []


def test_a_transaction_is_all_or_nothing_for_refusals_before_exec(redis: redis_py.Redis, pool: Redis) -> None:
    with pytest.raises(RedisRefused, match="ERR unknown command"):
        pool.transaction([("SET", "a", 1), ("NONSENSE", "b")])
    assert redis.keys() == []

    assert pool.transaction([("SET", "a", 1), ("INCR", "a")]) == [b"OK", 2]


def test_a_command_that_fails_inside_exec_is_raised_and_undoes_nothing(redis: redis_py.Redis, pool: Redis) -> None:
    redis.set("text", "x")
    with pytest.raises(RedisRefused) as refusal:
        pool.transaction([("SET", "a", 1), ("LPUSH", "text", 1), ("SET", "b", 1)])
    assert refusal.value.code == "WRONGTYPE"
    assert redis.mget("a", "b") == [b"1", b"1"]
    assert pool.execute("ECHO", "in step") == b"in step"


@pytest.mark.parametrize(
    ("act", "completed"),
    [
        (lambda session: session.execute("PING"), 1),
        (lambda session: session.pipeline([("PING",), ("PING",)]), 1),
        (lambda session: session.pipeline([("NONSENSE",), ("PING",)]), 1),
        (lambda session: session.pipeline([("NONSENSE",), ("NONSENSE",)]), 0),
        (lambda session: session.pipeline([]), 0),
    ],
)
def test_a_session_counts_the_round_trips_that_redis_may_have_applied(
    act: Callable[[Session], Any], completed: int, pool: Redis
) -> None:
    def block(session: Session) -> int:
        act(session)
        return session.completed

    assert pool.run(block) == completed


def test_a_refusal_names_its_code_and_leaves_the_session_in_step(pool: Redis) -> None:
    def block(session: Session) -> Any:
        with pytest.raises(RedisRefused) as refusal:
            session.execute("LPUSH")
        assert refusal.value.code == "ERR"
        return session.execute("ECHO", "in step")

    assert pool.run(block) == b"in step"


def test_connections_introduce_themselves(redis: redis_py.Redis, pool: Redis) -> None:
    pool.execute("PING")
    names = [client.get("lib-name", "") for client in redis.client_list()]
    if not any(names):
        pytest.skip("this server keeps no library names")
    assert any("wurk-django" in name for name in names)
