"""What must be true of the server before a worker starts, and a worker that starts only to drain its queues."""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Iterator

import pytest
import redis as redis_py

from tests.support.faults import Answer, named
from tests.support.proxy import Proxy
from tests.worker.rig import Recorder, Rig, enqueue, numbered, payload, queued, threads, wait_for
from wurk_django.errors import ConfigurationError
from wurk_django.worker import identity, process
from wurk_django.worker.boot import check_server


def says(proxy: Proxy, **fields: str) -> None:
    """Let the server call itself something else."""
    text = "".join(f"{name}:{value}\r\n" for name, value in {"redis_version": "7.2.9", **fields}.items())
    proxy.on(named("INFO"), Answer(b"$%d\r\n%b\r\n" % (len(text), text.encode())), times=None)


@pytest.mark.oracle("safety:S-64")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"redis_version": "6.2.14"}, "Redis 6.2.14 at .* is too old; 7.0.0 or newer"),
        ({"redis_version": "7.2.4", "valkey_version": "7.0.1"}, "Valkey 7.0.1 at .* is too old; 7.2.0 or newer"),
        ({"cluster_enabled": "1"}, "is a Redis Cluster"),
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy allkeys-lru .*noeviction"),
    ],
)
def test_a_server_that_cannot_keep_jobs_is_refused_with_the_way_out(
    fields: dict[str, str], reason: str, rig: Rig, proxy: Proxy
) -> None:
    says(proxy, **fields)

    with pytest.raises(ConfigurationError, match=reason):
        check_server(rig.config(url=proxy.url))


@pytest.mark.oracle("safety:S-64")
@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"redis_version": "7.0.14"}, True),
        ({"redis_version": "7.0.15"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.6"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0", "maxmemory_policy": "noeviction"}, False),
    ],
)
def test_a_server_without_its_fixes_is_worth_a_warning(
    fields: dict[str, str], warned: bool, rig: Rig, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    says(proxy, **fields)

    with caplog.at_level(logging.WARNING, "wurk"):
        check_server(rig.config(url=proxy.url))

    assert ("lacks security fixes" in caplog.text) is warned


def test_a_server_that_is_away_is_named_without_its_password(rig: Rig, proxy: Proxy, one_attempt: None) -> None:
    proxy.refuse = True
    config = rig.config(url=f"redis://:hush@127.0.0.1:{proxy.port}/0")

    with pytest.raises(ConfigurationError, match=r"REDACTED@127\.0\.0\.1.*cannot be used") as refused:
        check_server(config)

    assert "hush" not in str(refused.value)


@pytest.fixture
def _signals_as_before() -> Iterator[None]:
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in names}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals_as_before")
def test_a_burst_drains_what_is_queued_and_due_and_ends(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.job(act=lambda number: enqueue(redis, "b", payload("more")) if number == 3 else None)
    jobs.job("more")
    redis.sadd("processes", "gone:1:a")
    redis.zadd("schedule", {payload("work", "due", queue="a"): 1, payload("work", "later"): time.time() + 60})
    enqueue(redis, "a", *numbered(50))
    enqueue(redis, "other", payload())

    assert process.run(rig.config(["a", "b"], 3), burst=True) == 0

    assert sorted(map(str, jobs.calls)) == sorted(map(str, [*((n,) for n in range(50)), ("due",), ()]))
    assert queued(redis, "a") == queued(redis, "b") == []
    assert len(queued(redis, "other")) == 1
    assert redis.zcard("schedule") == 1
    assert redis.smembers("processes") == set(), "the dead member was pruned, our own has left"
    wait_for(lambda: threads() == [])


def test_a_second_process_with_the_same_identity_is_refused(redis: redis_py.Redis, rig: Rig) -> None:
    redis.hset(identity.identity(), "info", json.dumps({}))

    with pytest.raises(ConfigurationError, match="alive already"):
        process.run(rig.config())


@pytest.mark.oracle("safety:C10")
def test_a_process_that_is_named_like_a_living_one_refuses_to_start(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config()
    config.freeze()
    redis.sadd("processes", identity.identity())
    redis.hset(identity.identity(), "info", "{}")
    with pytest.raises(ConfigurationError, match=r"a process named .* is alive already"):
        process.check(config)

    redis.delete(identity.identity())
    process.check(config)
