"""Where Redis is: the forms of WURK["REDIS"], the environment, DEBUG, and no password in any message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.support.servers import RedisServer
from wurk_django import conf, embedded
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)


def load(settings: Any, **wurk: Any) -> Config:
    settings.WURK = wurk
    return conf.load()


def write_and_close(made: Config, key: str = "mark") -> None:
    made.redis.execute("SET", key, "here")
    made.reset_redis_pools()


@pytest.mark.parametrize("form", ["text", "dict"])
def test_a_url_is_where_jobs_go(form: str, settings: Any, redis: redis_py.Redis, redis_url: str) -> None:
    write_and_close(load(settings, REDIS=redis_url if form == "text" else {"URL": redis_url}))
    assert redis.get("mark") == b"here"


def test_the_environment_is_used_when_the_settings_name_no_redis(
    settings: Any, redis: redis_py.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    write_and_close(load(settings))
    assert redis.get("mark") == b"here"


def test_the_settings_come_before_the_environment(
    settings: Any, redis: redis_py.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    write_and_close(load(settings, REDIS=redis_url))
    assert redis.get("mark") == b"here"


def test_a_wrong_address_in_the_environment_is_told_without_its_password(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "http://me:secret@example.com")
    with pytest.raises(ConfigurationError, match="REDIS_URL") as caught:
        load(settings)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "http://me:secret@example.com",
        {"URL": "http://me:secret@example.com"},
        {"URL": "http://example.com?password=secret"},
        {"SENTINELS": [], "MASTER": "m", "URL": "redis://:secret@"},
        "http://[secret",
    ],
)
def test_a_wrong_redis_setting_is_told_without_its_password(wrong: Any) -> None:
    (found,) = conf.problems({"REDIS": wrong})
    assert "secret" not in found.message + found.hint


def test_production_without_redis_is_refused_with_a_hint(settings: Any) -> None:
    settings.DEBUG, settings.WURK = False, {}
    (found,) = conf.problems(conf.read())
    assert found.check_id == "wurk_django.E003"
    assert "REDIS_URL" in found.hint
    assert "embedded" in found.hint
    with pytest.raises(ConfigurationError, match="No Redis is configured"):
        conf.load()


def test_under_debug_the_embedded_server_is_used_by_itself(settings: Any, tmp_path: Path) -> None:
    # given
    settings.DEBUG, settings.BASE_DIR = True, tmp_path
    made = load(settings)
    try:
        # when
        write_and_close(made)
        # then
        with redis_py.Redis.from_url(embedded.ensure(tmp_path)) as client:
            assert client.get("mark") == b"here"
        assert (tmp_path / ".wurk").is_dir()
    finally:
        embedded.stop(tmp_path)


def test_production_may_ask_for_the_embedded_server(settings: Any, tmp_path: Path) -> None:
    settings.DEBUG, settings.BASE_DIR = False, tmp_path
    made = load(settings, REDIS="embedded")
    assert made.redis_options.describe() == "the embedded server"


def test_a_django_redis_cache_lends_its_server_database_and_password(
    settings: Any, redis: redis_py.Redis, redis_server: RedisServer
) -> None:
    # given
    redis.acl_setuser("lender", enabled=True, passwords=["+opensesame"], commands=["+@all"], keys=["*"])
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "jobs": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://lender@127.0.0.1:{redis_server.port}/3",
            "OPTIONS": {"PASSWORD": "opensesame", "SOCKET_TIMEOUT": 0.001},
        },
    }
    # when
    made = load(settings, REDIS={"CACHE": "jobs"})
    write_and_close(made)
    # then: in the cache's database, with our own timeouts and no retries of the cache's
    with redis_server.client(db=3) as client:
        assert client.get("mark") == b"here"
    assert redis.get("mark") is None
    redis.acl_deluser("lender")


def test_a_cache_of_another_kind_is_refused(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with pytest.raises(ConfigurationError, match="no django-redis cache"):
        load(settings, REDIS={"CACHE": "default"})


def test_a_cache_behind_sentinel_is_refused_with_a_hint(settings: Any) -> None:
    settings.DJANGO_REDIS_CONNECTION_FACTORY = "django_redis.pool.SentinelConnectionFactory"
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://mymaster/0",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "SENTINELS": [("127.0.0.1", 1)],
                "CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool",
            },
        }
    }
    with pytest.raises(ConfigurationError, match="Sentinel"):
        load(settings, REDIS={"CACHE": "default"})


def test_sentinels_are_asked_for_the_primary(settings: Any) -> None:
    made = load(settings, REDIS={"SENTINELS": [["10.0.0.1", 26379], ("10.0.0.2", 26380)], "MASTER": "main"})
    options = made.redis_options
    assert options.sentinels == (("10.0.0.1", 26379), ("10.0.0.2", 26380))
    assert options.master == "main"
    assert options.describe() == "main by 2 sentinels"


def test_with_sentinels_the_url_gives_login_and_database(settings: Any) -> None:
    made = load(settings, REDIS={"SENTINELS": [["10.0.0.1", 1]], "MASTER": "main", "URL": "redis://:pw@/4"})
    assert made.redis_options.url == "redis://:pw@/4"
