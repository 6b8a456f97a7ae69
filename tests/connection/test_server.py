"""What a worker demands of its server before it starts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.faults import Answer, named
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.config import Config
from wurk_django.connection import Redis, RedisOptions
from wurk_django.errors import ConfigurationError
from wurk_django.storage import server
from wurk_django.storage.server import Server
from wurk_django.worker.boot import check_server


def bulk(text: str) -> bytes:
    raw = text.replace("\n", "\r\n").encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


def told(proxy: Proxy, info: str) -> None:
    """The server behind the proxy says this about itself."""
    proxy.on(named("INFO"), Answer(bulk(info)), times=None)


@pytest.fixture
def config(proxy: Proxy) -> Any:
    config = Config(redis=RedisOptions(proxy.url))
    yield config
    config.reset_redis_pools()


def test_the_server_of_the_tests_will_do(config: Config) -> None:
    found = check_server(config)
    assert found.product in ("Redis", "Valkey")
    assert found.version >= (7, 0)
    assert found.policy == "noeviction"
    assert not found.cluster


@pytest.mark.oracle("safety:S-64")
@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("redis_version:6.2.14\nmaxmemory_policy:noeviction", "Redis 6.2.14 at .* is too old; 7.0.0 or newer"),
        ("redis_version:2.8\n", "Redis 2.8 at .* is too old"),
        ("redis_version:7.2.4\nvalkey_version:7.1.9\n", "Valkey 7.1.9 at .* is too old; 7.2.0"),
        ("redis_version:7.2.5\nredis_mode:cluster\n", "is a Redis Cluster"),
        ("redis_version:7.2.5\ncluster_enabled:1\n", "is a Redis Cluster"),
        ("redis_version:7.2.5\nmaxmemory_policy:allkeys-lru\n", "maxmemory-policy allkeys-lru .* noeviction"),
        ("redis_version:7.2.5\nmaxmemory_policy:volatile-ttl\n", "maxmemory-policy volatile-ttl"),
    ],
)
def test_a_server_that_would_lose_jobs_is_refused_with_the_way_out(
    info: str, message: str, config: Config, proxy: Proxy
) -> None:
    told(proxy, info)
    with pytest.raises(ConfigurationError, match=message):
        check_server(config)


@pytest.mark.oracle("safety:S-64")
def test_a_real_server_that_evicts_is_refused() -> None:
    with RedisServer(config={"maxmemory-policy": "allkeys-lru"}) as evicting:
        config = Config(redis=RedisOptions(evicting.url))
        with pytest.raises(ConfigurationError, match="maxmemory-policy allkeys-lru"):
            check_server(config)
        config.reset_redis_pools()


@pytest.mark.oracle("safety:S-64")
@pytest.mark.parametrize(
    ("info", "warns"),
    [
        ("redis_version:7.0.0\n", True),
        ("redis_version:7.0.14\n", True),
        ("redis_version:7.2.4\nvalkey_version:7.2.5\n", True),
        ("redis_version:8.0.1\nmaxmemory_policy:noeviction\n", False),
        ("redis_version:7.2.4\nvalkey_version:9.0.0\n", False),
    ],
)
def test_a_build_without_security_fixes_is_warned_about(
    info: str, warns: bool, config: Config, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    told(proxy, info)
    with caplog.at_level(logging.WARNING, "wurk"):
        check_server(config)
    assert ("lacks security fixes" in caplog.text) == warns


def test_a_server_without_info_counts_as_new(config: Config, proxy: Proxy) -> None:
    proxy.on(named("INFO"), Answer("ERR unknown command 'INFO'"))
    assert check_server(config) == Server("a server without INFO", (9, 9, 9), False, "")


def test_valkey_is_told_by_its_own_version(through: Redis, proxy: Proxy) -> None:
    told(proxy, "redis_version:7.2.4\nvalkey_version:8.1.1\nmaxmemory_policy:noeviction")
    assert server.inspect(through) == Server("Valkey", (8, 1, 1), False, "noeviction")


def test_an_unreachable_server_is_a_configuration_error_without_its_password(pauses: list[float]) -> None:
    config = Config(redis=RedisOptions("redis://:s3cret@127.0.0.1:1/0"))
    with pytest.raises(ConfigurationError, match=r"Redis at redis://REDACTED@127\.0\.0\.1:1/0 cannot be used") as wrong:
        check_server(config)
    assert "s3cret" not in str(wrong.value)
