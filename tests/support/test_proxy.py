"""The proxy must break exactly what it was told to break, or every crash test proves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis as redis_py
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ReadOnlyError, TimeoutError
from redis.retry import Retry

from tests.support.faults import (
    After,
    Answer,
    Before,
    CutReply,
    Delay,
    Kill,
    LoseReply,
    LoseRequest,
    Slice,
    anything,
    named,
    script,
    touching,
)
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

Connect = Callable[..., redis_py.Redis]


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(**options: object) -> redis_py.Redis:
            options = {"socket_timeout": 5, "protocol": 2, "retry": Retry(NoBackoff(), 0), **options}
            return stack.enter_context(redis_py.Redis.from_url(proxy.url, **options))

        yield connect


def eventually(condition: Callable[[], bool], timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def test_without_a_rule_everything_passes_and_is_recorded(proxy: Proxy, connect: Connect) -> None:
    client = connect()
    blob = os.urandom(3_000_000)

    assert client.set("k", blob)
    assert client.get("k") == blob
    assert client.lrange("nothing", 0, -1) == []

    assert proxy.names() == ["SET", "GET", "LRANGE"]
    assert next(c for c in proxy.commands if c.name == "SET") == (b"SET", b"k", blob)


def test_a_lost_request_is_never_applied(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    rule = proxy.on(named("LPUSH"), LoseRequest())

    with pytest.raises(ConnectionError, match="closed by server"):
        connect().lpush("q", "a")

    assert rule.hits == 1
    assert redis.llen("q") == 0
    assert connect().lpush("q", "a") == 1, "the rule was for one command only"


def test_a_lost_reply_leaves_the_command_applied(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    proxy.on(named("LPUSH"), LoseReply())

    with pytest.raises(ConnectionError, match="closed by server"):
        connect().lpush("q", "a")

    assert redis.lrange("q", 0, -1) == [b"a"]


@pytest.mark.parametrize(("fault", "length"), [(LoseRequest(hang=True), 0), (LoseReply(hang=True), 1)])
def test_a_hanging_line_shows_as_a_timeout_of_the_caller(
    fault: LoseRequest | LoseReply, length: int, proxy: Proxy, connect: Connect, redis: redis_py.Redis
) -> None:
    rule = proxy.on(named("LPUSH"), fault)

    with pytest.raises(TimeoutError):
        connect(socket_timeout=0.2).lpush("q", "a")

    rule.wait()
    assert redis.llen("q") == length


def test_a_reset_can_stand_for_the_closing(proxy: Proxy, connect: Connect) -> None:
    proxy.on(named("PING"), LoseRequest(reset=True))
    with pytest.raises(ConnectionError, match="reset"):
        connect().ping()


def test_a_reply_is_cut_after_exactly_n_bytes(proxy: Proxy) -> None:
    proxy.on(named("ECHO"), CutReply(7))
    with socket.create_connection(("127.0.0.1", proxy.port)) as sock, sock.makefile("rb") as replies:
        sock.sendall(b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n")
        assert replies.read() == b"$5\r\nhel"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_fragments_lose_nothing(size: int, proxy: Proxy, connect: Connect) -> None:
    rule = proxy.on(anything, Slice(size), times=None)
    client = connect()
    client.rpush("q", *[f"job {n}" for n in range(50)])
    assert client.lrange("q", 0, -1) == [b"job %d" % n for n in range(50)]
    assert rule.hits == 2


def test_a_delay_holds_one_command_back(proxy: Proxy, connect: Connect) -> None:
    proxy.on(named("PING"), Delay(request_s=0.1, reply_s=0.1))
    started = time.monotonic()
    connect().ping()
    assert time.monotonic() - started >= 0.2


def test_the_proxy_answers_in_place_of_redis(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    proxy.on(named("SET"), Answer("READONLY You can't write against a read only replica."))
    proxy.on(named("GET"), Answer(b"$3\r\nfoo\r\n"))
    client = connect()

    with pytest.raises(ReadOnlyError):
        client.set("k", "v")

    assert client.get("k") == b"foo"
    assert redis.get("k") is None
    assert client.ping(), "the connection goes on"


def test_command_n_is_chosen_by_letting_the_others_pass(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    proxy.on(touching("q"), LoseRequest(), skip=2)
    client = connect()
    client.rpush("q", 1)
    client.rpush("other", 1)
    client.rpush("q", 2)
    with pytest.raises(ConnectionError):
        client.rpush("q", 3)
    assert redis.lrange("q", 0, -1) == [b"1", b"2"]


def test_a_script_is_met_by_its_sha_and_by_its_source(proxy: Proxy, connect: Connect) -> None:
    source = "return redis.call('INCR', KEYS[1])"
    client = connect()
    counter = client.register_script(source)
    rule = proxy.on(script(counter.sha), After(lambda: None), times=None)

    assert counter(keys=["n"]) == 1, "NOSCRIPT, SCRIPT LOAD, EVALSHA"
    assert client.eval(source, 1, "n") == 2
    assert client.eval("return 1", 0) == 1

    assert rule.hits == 3


def test_a_fault_inside_a_pipeline_leaves_the_earlier_replies_alone(
    proxy: Proxy, connect: Connect, redis: redis_py.Redis
) -> None:
    proxy.on(touching("b"), Answer("OOM command not allowed"))
    pipe = connect().pipeline(transaction=False)
    pipe.set("a", 1).set("b", 2).set("c", 3)

    first, second, third = pipe.execute(raise_on_error=False)

    assert (first, third) == (True, True)
    assert str(second) == "command not allowed"
    assert sorted(redis.keys("*")) == [b"a", b"c"]


def test_a_transaction_is_lost_by_its_exec(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    proxy.on(named("EXEC"), LoseRequest())
    pipe = connect().pipeline(transaction=True)
    pipe.set("a", 1).set("b", 2)
    with pytest.raises(ConnectionError):
        pipe.execute()
    assert redis.keys("*") == []
    assert proxy.names() == ["MULTI", "SET", "SET", "EXEC"]


def test_a_pipeline_is_one_round_trip(proxy: Proxy, connect: Connect) -> None:
    client = connect()
    client.ping()
    before = proxy.round_trips
    pipe = client.pipeline(transaction=False)
    for n in range(2000):
        pipe.set(f"key {n}", "x" * 100)
    pipe.execute()
    client.ping()
    assert proxy.round_trips - before == 2
    assert proxy.count("SET") == 2000


def test_a_blocking_pop_is_left_when_its_caller_goes(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    client = connect(socket_timeout=0.2)
    with pytest.raises(TimeoutError):
        client.blmove("q", "private", 30, "RIGHT", "LEFT")

    eventually(lambda: redis.info("clients")["blocked_clients"] == 0)
    redis.lpush("q", "job")

    assert redis.lrange("q", 0, -1) == [b"job"]


def test_the_reply_of_a_blocking_pop_can_be_lost(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    proxy.on(named("BLMOVE"), LoseReply())
    pusher = threading.Thread(
        target=lambda: (eventually(lambda: redis.info("clients")["blocked_clients"] == 1), redis.lpush("q", "job"))
    )
    pusher.start()
    with pytest.raises(ConnectionError):
        connect().blmove("q", "private", 30, "RIGHT", "LEFT")
    pusher.join()
    assert redis.lrange("private", 0, -1) == [b"job"], "a phantom claim"


CALLER = """
import redis, sys
client = redis.Redis.from_url(sys.argv[1], protocol=2)
client.ping()
pipe = client.pipeline(transaction=False)
pipe.rpush("q", 1).rpush("q", 2).rpush("q", 3)
print(pipe.execute(), flush=True)
"""


@pytest.mark.crash
@pytest.mark.parametrize(("moment", "applied"), [(Kill.before, [b"1"]), (Kill.after, [b"1", b"2"])])
def test_a_process_is_killed_at_exactly_one_command(
    moment: Callable[[Callable[[], int]], Before | After], applied: list[bytes], proxy: Proxy, redis: redis_py.Redis
) -> None:
    caller: list[subprocess.Popen[bytes]] = []
    rule = proxy.on(named("RPUSH"), moment(lambda: caller[0].pid), skip=1)

    with subprocess.Popen([sys.executable, "-c", CALLER, proxy.url], stdout=subprocess.PIPE) as process:
        caller.append(process)
        output, _ = process.communicate(timeout=10)

    rule.wait()
    assert process.returncode == -signal.SIGKILL
    assert output == b""
    assert redis.lrange("q", 0, -1) == applied


def test_all_connections_are_reset_at_once(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    idle = socket.create_connection(("127.0.0.1", proxy.port))
    blocked = socket.create_connection(("127.0.0.1", proxy.port))
    with idle, blocked:
        blocked.sendall(b"BLPOP q 30\r\n")
        eventually(lambda: redis.info("clients")["blocked_clients"] == 1)

        assert proxy.reset_all() == 2

        for sock in (idle, blocked):
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
    eventually(lambda: redis.info("clients")["blocked_clients"] == 0)
    assert connect().ping(), "a new connection gets through"


def test_a_request_in_a_black_hole_arrives_late_even_from_a_caller_that_left(
    proxy: Proxy, connect: Connect, redis: redis_py.Redis
) -> None:
    client = connect(socket_timeout=0.2)
    client.ping()
    proxy.black_hole("request")
    with pytest.raises(TimeoutError):
        client.lpush("q", "late")
    client.close()
    assert redis.llen("q") == 0

    proxy.heal()

    eventually(lambda: redis.llen("q") == 1)


def test_a_black_hole_for_replies_lets_requests_through(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    client = connect(socket_timeout=0.2)
    client.ping()
    proxy.black_hole("reply")
    with pytest.raises(TimeoutError):
        client.lpush("q", "job")
    assert redis.llen("q") == 1
    proxy.heal()
    assert client.ping()


def test_a_partition_can_end_with_everything_in_it_lost(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    client = connect(socket_timeout=0.2)
    client.ping()
    proxy.black_hole()
    with pytest.raises(TimeoutError):
        client.lpush("q", "lost")

    proxy.heal(deliver=False)

    eventually(lambda: not proxy.lines())
    assert redis.llen("q") == 0
    assert client.ping()


def test_latency_is_paid_once_for_a_pipeline(proxy: Proxy, connect: Connect) -> None:
    client = connect()
    client.ping()
    proxy.latency(0.1)
    pipe = client.pipeline(transaction=False)
    for _ in range(20):
        pipe.ping()

    started = time.monotonic()
    pipe.execute()

    assert 0.2 <= time.monotonic() - started < 1.0


def test_refused_connections_and_a_swapped_server(proxy: Proxy, connect: Connect) -> None:
    client = connect()
    client.set("where", "first")
    proxy.refuse = True
    proxy.reset_all()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            client.ping()

    with RedisServer() as other:
        proxy.upstream = ("127.0.0.1", other.port)
        proxy.refuse = False
        assert client.get("where") is None


def test_messages_of_a_subscription_pass(proxy: Proxy, connect: Connect, redis: redis_py.Redis) -> None:
    with connect().pubsub() as subscription:
        subscription.subscribe("news")
        assert subscription.get_message(timeout=5)["type"] == "subscribe"
        redis.publish("news", "hello")
        assert subscription.get_message(timeout=5)["data"] == b"hello"


def test_closing_the_proxy_leaves_no_thread_and_no_hanging_caller(redis_server: RedisServer) -> None:
    proxy = Proxy(redis_server.port)
    proxy.black_hole()
    with redis_py.Redis.from_url(proxy.url, protocol=2, retry=Retry(NoBackoff(), 0)) as client:

        def ping() -> None:
            with pytest.raises(ConnectionError):
                client.ping()

        hanging = threading.Thread(target=ping)
        hanging.start()
        eventually(lambda: proxy.round_trips > 0)
        lines = proxy.lines()

        proxy.close()

        hanging.join(5)
        assert not hanging.is_alive()
        eventually(lambda: not any(line.thread.is_alive() for line in lines))
