"""Where Redis is: what an address may say, what is never taken from it, and what is never shown of it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django import connection
from wurk_django.connection import OURS, Redis, RedisOptions, redact
from wurk_django.errors import ConfigurationError, DialFailed, RedisRefused

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        (f"redis://user:{SECRET}@host:6379/1", "redis://REDACTED@host:6379/1"),
        (f"redis://:{SECRET}@host", "redis://REDACTED@host"),
        (f"rediss://host/0?password={SECRET}&ssl_certfile=/x", "rediss://host/0"),
        (f"redis://:{SECRET}@host/0?username=a#b", "redis://REDACTED@host/0"),
        (f"unix://:{SECRET}@/run/redis.sock?db=1", "unix://REDACTED@/run/redis.sock"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        (f"redis://:{SECRET}/with/slashes@host:6379", "redis://REDACTED@host:6379"),
        (f"redis://:{SECRET}?and#all[that@host:6379", "redis://REDACTED@host:6379"),
        (f"redis://:p@{SECRET}@host:6379", "redis://REDACTED@host:6379"),
        (f"postgres://u:{SECRET}@db/x", "postgres://REDACTED@db/x"),
        (f"redis:{SECRET}@host", "(an address that cannot be read)"),
        (SECRET, "(an address that cannot be read)"),
        ("redis://[::1:6379", "(an address that cannot be read)"),
    ],
)
def test_an_address_is_shown_without_login_and_query(url: str, shown: str) -> None:
    assert redact(url) == shown


@given(st.text("ab:/?#[]@%|\\ \n", max_size=12), st.sampled_from(["redis", "rediss", "http"]))
def test_no_password_is_shown_however_it_is_written(password: str, scheme: str) -> None:
    assert SECRET not in redact(f"{scheme}://user:{password}{SECRET}{password}@host:6379/0")


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/x@host:6379",
        f"http://:{SECRET}@host",
        SECRET,
        f"redis://[{SECRET}@h",
    ],
)
def test_a_wrong_address_is_an_error_that_tells_no_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        RedisOptions(url).dial()

    told = str(wrong.value) + repr(wrong.value.__cause__)
    assert SECRET not in told
    assert "cannot be used" in str(wrong.value)


def test_options_show_nothing_secret() -> None:
    plain = RedisOptions(f"redis://u:{SECRET}@host/0", extra={"password": SECRET})
    guarded = RedisOptions("redis:///0", (("a", 1), ("b", 2)), "main", extra={"password": SECRET})
    embedded = RedisOptions(lambda: f"redis://:{SECRET}@host")
    for options in (plain, guarded, embedded):
        assert SECRET not in repr(options)
        assert SECRET not in options.describe()
    assert guarded.describe() == "main by 2 sentinels"
    assert embedded.describe() == "the embedded server"


@pytest.mark.parametrize("option", ["namespace=x", "nonsense=1"])
def test_an_option_that_does_not_exist_is_an_error_that_names_it(option: str, redis_url: str) -> None:
    with pytest.raises(ConfigurationError, match=option.partition("=")[0]):
        RedisOptions(f"{redis_url}?{option}").dial()


@pytest.mark.parametrize(
    "option",
    [
        "retry_on_timeout=yes", "health_check_interval=1", "max_connections=1", "socket_timeout=99", "protocol=3",
        "socket_connect_timeout=99", "decode_responses=true", "timeout=5", "retry_on_error=x",
    ],
)  # fmt: skip
def test_an_address_decides_nothing_about_retries_timeouts_and_replies(option: str, redis_url: str, redis: Any) -> None:
    assert option.partition("=")[0] in OURS
    link = RedisOptions(f"{redis_url}?{option}", read_timeout_s=0.7).dial()
    try:
        check_ours(link)
    finally:
        link.disconnect()


def check_ours(link: Any) -> None:
    assert link.retry.get_retries() == 0
    assert not link.retry_on_timeout
    assert not link.health_check_interval
    assert (link.socket_timeout, link.socket_connect_timeout) == (0.7, 1.0)
    assert link.protocol == 2
    link.send_command("ECHO", b"\xff")
    assert link.read_response() == b"\xff"


def test_keywords_decide_nothing_about_retries_either(redis_url: str, redis: Any) -> None:
    extra = {
        "retry_on_timeout": True,
        "socket_timeout": 99,
        "decode_responses": True,
        "protocol": 3,
        "client_name": "me",
    }
    link = RedisOptions(redis_url, extra=extra, read_timeout_s=0.7).dial()
    try:
        check_ours(link)
        assert "me" in [client["name"] for client in redis.client_list()]
    finally:
        link.disconnect()


def test_the_database_of_the_address_is_selected(redis_server: RedisServer, redis: Any, make_pool: Any) -> None:
    make_pool(f"redis://127.0.0.1:{redis_server.port}/3").execute("SET", "k", 1)
    with redis_server.client(db=3) as three:
        assert three.getdel("k") == b"1"
    assert redis.exists("k") == 0


def test_a_socket_in_the_file_system_is_an_address_too(tmp_path: Path, make_pool: Any) -> None:
    path = tmp_path / "s"
    with RedisServer(config={"unixsocket": str(path)}):
        assert make_pool(f"unix://{path}?db=2").execute("PING") == b"PONG"


def test_a_login_that_is_refused_is_a_refusal_and_not_an_outage(
    make_pool: Any, pauses: list[float], reports: list[Any]
) -> None:
    with RedisServer() as server:
        server.config_set(requirepass=SECRET)
        address = f"127.0.0.1:{server.port}/0"
        assert make_pool(f"redis://:{SECRET}@{address}").execute("PING") == b"PONG"
        with pytest.raises(RedisRefused, match="WRONGPASS"):
            make_pool(f"redis://:wrong@{address}", reports=reports).execute("PING")
        with pytest.raises(RedisRefused) as refusal:
            make_pool(f"redis://{address}").execute("PING")
        assert refusal.value.code == "NOAUTH"
    assert [report.retried for report in reports] == [False]
    assert pauses == []


def test_an_address_may_be_known_only_when_the_first_connection_is_made(redis_url: str, redis: Any) -> None:
    asked: list[int] = []

    def url() -> str:
        asked.append(1)
        return redis_url

    pool = Redis(RedisOptions(url))
    assert asked == []
    assert pool.execute("PING") == b"PONG"
    pool.close()


def test_a_client_of_redis_py_lends_its_address_and_none_of_its_habits(proxy: Proxy, redis: redis_py.Redis) -> None:
    theirs = redis_py.Redis.from_url(
        f"redis://127.0.0.1:{proxy.port}/5", decode_responses=True, socket_timeout=99, retry_on_timeout=True,
        health_check_interval=1, protocol=3, client_name="theirs",
    )  # fmt: skip
    options = RedisOptions.of_client(theirs)
    link = RedisOptions(options.url, extra=options.extra, read_timeout_s=0.7).dial()
    try:
        check_ours(link)
        assert link.db == 5
        assert proxy.accepted == 1
    finally:
        link.disconnect()
        theirs.close()


def test_a_tls_client_lends_its_certificates() -> None:
    theirs = redis_py.Redis.from_url("rediss://example.invalid:1/0", ssl_ca_certs="/ca.pem", ssl_check_hostname=True)
    extra = RedisOptions.of_client(theirs).extra
    assert extra["ssl_ca_certs"] == "/ca.pem"
    assert extra["connection_class"].__name__ == "SSLConnection"
    theirs.close()


def test_nobody_answers_within_the_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(DialFailed):
            RedisOptions(f"redis://127.0.0.1:{port}", connect_timeout_s=0.1, read_timeout_s=0.1).dial()


def test_what_answers_is_no_redis() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises((DialFailed, RedisRefused)):
            RedisOptions(f"redis://127.0.0.1:{server.getsockname()[1]}", read_timeout_s=0.5).dial()
        thread.join(5)


def test_the_constants_that_name_parameters_name_existing_ones() -> None:
    assert {"retry", "protocol", "socket_timeout", "decode_responses"} <= OURS
    assert not [name for name in OURS if connection.ADDRESS.fullmatch(name)]
