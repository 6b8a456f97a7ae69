"""The lock of the leader: who gets it, who keeps it, who may give it up."""

from __future__ import annotations

import pytest
import redis as redis_py

from tests.support.faults import LoseReply, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.connection import Redis
from wurk_django.storage import leader

LOCK = "dear-leader"


@pytest.mark.oracle("reliability:L1")
def test_the_first_to_campaign_gets_the_lock_for_a_time(redis: redis_py.Redis, pool: Redis) -> None:
    assert leader.campaign(pool, LOCK, "a:1:x", 30)

    assert redis.get(LOCK) == b"a:1:x"
    assert 29_000 < redis.pttl(LOCK) <= 30_000
    assert leader.current(pool, LOCK) == "a:1:x"


@pytest.mark.oracle("reliability:L2")
def test_a_renewal_refreshes_the_time_to_live(redis: redis_py.Redis, pool: Redis) -> None:
    leader.campaign(pool, LOCK, "a:1:x", 30)
    redis.pexpire(LOCK, 100)

    assert leader.campaign(pool, LOCK, "a:1:x", 30)

    assert redis.pttl(LOCK) > 29_000


@pytest.mark.oracle("reliability:L3")
def test_a_late_renewal_leaves_the_lock_of_another_as_it_is(redis: redis_py.Redis, pool: Redis) -> None:
    leader.campaign(pool, LOCK, "b:2:y", 1)

    assert not leader.campaign(pool, LOCK, "a:1:x", 30)

    assert redis.get(LOCK) == b"b:2:y"
    assert redis.pttl(LOCK) <= 1000


@pytest.mark.oracle("reliability:L4")
def test_only_its_owner_gives_up_a_lock(redis: redis_py.Redis, pool: Redis) -> None:
    leader.campaign(pool, LOCK, "b:2:y", 30)

    assert not leader.release_if_owner(pool, LOCK, "a:1:x")
    assert redis.get(LOCK) == b"b:2:y"
    assert leader.release_if_owner(pool, LOCK, "b:2:y")
    assert not redis.exists(LOCK)
    assert not leader.release_if_owner(pool, LOCK, "b:2:y")
    assert leader.current(pool, LOCK) == ""


def test_each_term_has_a_larger_number(pool: Redis) -> None:
    assert [leader.begin_term(pool) for _ in range(3)] == [1, 2, 3]


def test_a_campaign_whose_answer_was_lost_is_repeated_and_won(
    redis: redis_py.Redis, broken_line: Redis, proxy: Proxy
) -> None:
    redis.script_load(leader._campaign.source)
    proxy.on(script(leader._campaign.sha.decode()), LoseReply())

    assert leader.campaign(broken_line, LOCK, "a:1:x", 30)

    assert redis.get(LOCK) == b"a:1:x"


def test_there_is_a_leader_also_while_redis_is_full(full: tuple[RedisServer, Redis]) -> None:
    server, pool = full
    with server.client() as client:
        client.config_set("maxmemory", 1)

        assert leader.campaign(pool, LOCK, "a:1:x", 30)
        assert leader.release_if_owner(pool, LOCK, "a:1:x")
