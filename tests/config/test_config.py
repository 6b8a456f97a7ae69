"""The configuration of a process: assembled, installed into, frozen; its pools and its error handlers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import LoseReply, named
from tests.support.proxy import Proxy
from wurk_django import config as configuration
from wurk_django.config import Config, Options, describe
from wurk_django.connection import RedisOptions, RetryReport
from wurk_django.errors import ConfigurationError, InvalidHook
from wurk_django.feature import Feature


@pytest.fixture
def config() -> Config:
    return Config(redis=RedisOptions("redis://127.0.0.1:1"))


@pytest.fixture
def live(redis_url: str) -> Iterator[Config]:
    config = Config(redis=RedisOptions(redis_url))
    yield config
    config.reset_redis_pools()


def test_options_have_sidekiqs_defaults_where_it_has_any() -> None:
    options = Options()
    assert (options.concurrency, options.timeout, options.max_retries) == (5, 25, 25)
    assert (options.dead_max_jobs, options.dead_timeout_in_seconds) == (10_000, 180 * 24 * 3600)
    assert (options.heartbeat_interval, options.heartbeat_ttl, options.fetch_block) == (10, 60, 2)
    assert (options.reaper_interval, options.reaper_grace, options.poll_interval) == (60, 30, 0.5)
    assert options.on_complex_arguments == "raise"
    assert options.logged_job_attributes == ("bid", "tags")
    assert dict(options.default_job_options) == {"retry": True, "queue": "default"}
    assert options.redis_idle_timeout is None


def test_the_address_is_that_of_the_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:1/2")
    assert Config().redis_options.url == "redis://elsewhere:1/2"
    monkeypatch.delenv("REDIS_URL")
    assert Config().redis_options.url == "redis://localhost:6379/0"


def test_a_configuration_without_capsules_gets_one_when_it_is_frozen(config: Config) -> None:
    assert config.capsules == {}
    config.freeze()
    assert list(config.capsules) == ["default"]
    assert config.queue_names() == ["default"]
    assert config.total_concurrency == 5


def test_capsules_add_up(config: Config) -> None:
    config.capsule("default", ["a", "b"], 3)
    config.capsule("other", ["b", "c,2"], 4)
    config.capsule("other", ["c", "d"], 2)

    assert config.queue_names() == ["a", "b", "c", "d"]
    assert config.total_concurrency == 5


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_capsule_needs_a_thread(concurrency: int, config: Config) -> None:
    with pytest.raises(ConfigurationError, match="the capsule 'c' needs a concurrency of at least 1"):
        config.capsule("c", ["a"], concurrency)


def test_a_frozen_configuration_takes_no_change(config: Config) -> None:
    config.freeze()
    assert config.frozen
    with pytest.raises(ConfigurationError, match="frozen since the worker started; options cannot change"):
        config.options = Options(concurrency=9)
    with pytest.raises(ConfigurationError, match="defer cannot change"):
        config.defer = None
    with pytest.raises(ConfigurationError, match="'late' comes too late"):
        config.capsule("late", ["a"], 1)
    assert config.options.concurrency == 5


def test_freezing_does_not_pin_connections(live: Config) -> None:
    live.freeze()
    before = live.redis
    assert before.execute("PING") == b"PONG"

    live.reset_redis_pools()

    assert live.redis is not before
    assert live.redis.execute("PING") == b"PONG"


def test_pools_are_made_once_named_and_large_enough(proxy: Proxy) -> None:
    config = Config(redis=RedisOptions(proxy.url))
    small = config.capsule("small", ["a"], 2)
    large = config.capsule("large", ["b"], 20)

    assert config.redis is config.redis
    assert small.redis is small.redis is not large.redis
    assert (config.redis.size, small.redis.size, large.redis.size) == (10, 10, 25)
    assert (config.redis.name, small.redis.name, large.redis.name) == ("internal", "small main", "large main")
    assert proxy.accepted == 0


def test_resetting_closes_the_connections_of_every_pool(live: Config, redis: redis_py.Redis) -> None:
    capsule = live.capsule("c", ["a"], 1)
    numbers = {int(live.redis.execute("CLIENT", "ID")), int(capsule.redis.execute("CLIENT", "ID"))}

    live.reset_redis_pools()

    assert numbers.isdisjoint(int(client["id"]) for client in redis.client_list())
    assert capsule.redis.execute("PING") == b"PONG"


def test_retries_of_every_pool_are_reported_to_the_configuration(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RetryReport] = []
    monkeypatch.setattr(Config, "on_redis_retry", lambda self, report: seen.append(report))
    config = Config(redis=RedisOptions(proxy.url))
    pools = [config.redis, config.capsule("c", ["a"], 1).redis]
    proxy.on(named("INCR"), LoseReply(), times=None)

    for pool in pools:
        with pytest.raises(Exception, match="did not answer"):
            pool.execute("INCR", "n")
    config.reset_redis_pools()

    assert [(report.pool, report.attempt, report.retried) for report in seen] == [
        ("internal", 1, False), ("c main", 1, False),
    ]  # fmt: skip


def test_a_room_is_plugged_in_with_everything_it_brings(config: Config) -> None:
    class Outer: ...

    class Inner: ...

    fired: list[str] = []
    makers = lambda running: ()  # noqa: E731
    config.install(Feature("first", (Outer,), (Outer,), (("startup", lambda: fired.append("first")),)))
    config.install(Feature("second", (Inner,), (Inner,), (("startup", lambda: fired.append("second")),), makers))
    config.hooks.fire("startup", config.report)

    assert list(config.client_middleware) == list(config.server_middleware) == [Outer, Inner]
    assert fired == ["first", "second"]
    assert config.component_makers == [makers]


def test_a_room_with_an_unknown_event_is_refused(config: Config) -> None:
    with pytest.raises(InvalidHook, match="'birthday' is not a lifecycle event"):
        config.install(Feature("odd", hooks=(("birthday", lambda: None),)))


def test_each_capsule_has_a_chain_of_its_own_that_starts_as_the_configurations(config: Config) -> None:
    class Common: ...

    class Own: ...

    config.server_middleware.add(Common)
    one, two = config.capsule("one", ["a"], 1), config.capsule("two", ["b"], 1)
    one.server_middleware.add(Own)

    assert list(one.server_middleware) == [Common, Own]
    assert list(two.server_middleware) == list(config.server_middleware) == [Common]
    assert one.server_middleware.config is one


def test_every_error_handler_is_told_even_when_one_fails(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def broken(error: BaseException, context: dict[str, Any]) -> None:
        raise RuntimeError("reporter")

    config.error_handlers[:] = [broken, lambda error, context: told.append((error, context))]
    error = ValueError("x")
    with caplog.at_level(logging.ERROR, "wurk"):
        config.report(error, "somewhere")
        config.report(error, {"context": "job", "job": {"jid": "a"}})

    assert told == [(error, {"context": "somewhere"}), (error, {"context": "job", "job": {"jid": "a"}})]
    assert "ERROR HANDLER THREW AN ERROR" in caplog.text


def test_the_default_handler_names_the_job_in_one_line(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    payload = {"class": "Charge", "jid": "abc", "queue": "low", "args": ["s3cret"]}
    with caplog.at_level(logging.INFO, "wurk"):
        config.report(ValueError("boom"), {"context": "Job raised exception", "job": payload})

    [record] = caplog.records
    assert "Job raised exception" in record.getMessage()
    for part in ("class=Charge", "jid=abc", "queue=low", "ValueError: boom"):
        assert part in record.getMessage()
    assert "s3cret" not in record.getMessage()


def test_an_error_is_described_whatever_its_text_does() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(ValueError("x")) == "ValueError: x"
    assert describe(Rude()).startswith("Rude: !!!")
    assert len(describe(ValueError("x" * 5000))) < 1100


def test_the_default_configuration_is_made_on_first_use_by_the_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_default", None)
    monkeypatch.setattr(configuration, "_factory", configuration._factory)
    made: list[Config] = []

    def factory() -> Config:
        made.append(Config())
        return made[-1]

    configuration.set_default_factory(factory)
    assert made == []
    assert configuration.default() is configuration.default() is made[0]
    configuration.set_default_factory(factory)
    assert configuration.default() is made[1]
