"""Which operation is sent again after a lost answer, and what a replay finds: docs/spec/reliability.md §13.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import LoseReply, anything
from tests.support.line import Command
from tests.support.proxy import Proxy
from wurk_django.config import Options
from wurk_django.connection import Redis
from wurk_django.errors import RedisUnavailable
from wurk_django.storage import orphans, processes, queues, server, sorted_sets, stats
from wurk_django.storage.queues import Ack, Lane

LANE = Lane("q", "queue:q", "queue:q|h|1|n|0")
COUNTER = "super_fetch:recovered:a"
JOB = b'{"class":"C","args":[],"jid":"a","queue":"q"}'
OPTIONS = Options()
LIVE = "h:1:n"


READS = {
    "paused": lambda pool: queues.paused(pool),
    "unfinished": lambda pool: queues.unfinished(pool, [LANE]),
    "held counts": lambda pool: queues.held_counts(pool, [LANE]),
    "held": lambda pool: queues.held(pool, LANE, OPTIONS),
    "ping": lambda pool: processes.measure_rtt_us(pool),
    "info": lambda pool: server.inspect(pool).product,
    "live owners": lambda pool: processes.live_owners(pool),
    "is alive": lambda pool: processes.is_alive(pool, LIVE),
    "process count": lambda pool: processes.count(pool),
    "scan": lambda pool: list(orphans.private_lists(pool)),
    "idle time": lambda pool: orphans.idle_seconds(pool, LANE.private),
    "newest": lambda pool: orphans.newest(pool, LANE.private),
}
REPEATED = {
    **READS,
    "ack flush": lambda pool: queues.dispatch(pool, [Ack(LANE.private, COUNTER, JOB)], [], [], 0, OPTIONS),
    "requeue": lambda pool: queues.requeue(pool, [(LANE, JOB)]),
    "retry": lambda pool: sorted_sets.book_retry(pool, LANE, COUNTER, JOB, JOB, 5),
    "death": lambda pool: sorted_sets.bury(pool, LANE, COUNTER, JOB, JOB, OPTIONS),
    "drain": lambda pool: orphans.drain(pool, LANE.private, "q", None, [JOB], [COUNTER], 3),
    "schedule": lambda pool: sorted_sets.schedule(pool, [(5.0, JOB)]),
    "promote": lambda pool: sorted_sets.promote_due(pool, "retry", OPTIONS),
    "kill": lambda pool: sorted_sets.kill(pool, JOB, OPTIONS),
    "trim": lambda pool: sorted_sets.trim_dead(pool, 10, 10),
    "pause": lambda pool: queues.pause(pool, "q"),
    "unpause": lambda pool: queues.unpause(pool, "q"),
    "deregister": lambda pool: processes.deregister(pool, LIVE),
}
SENT_ONCE = {
    "push": lambda pool: queues.push(pool, {"q": [JOB]}),
    "claim": lambda pool: queues.dispatch(pool, [], [LANE], [1], 1, OPTIONS),
    "claim with acks": lambda pool: queues.dispatch(
        pool, [Ack(LANE.private, COUNTER, JOB)], [LANE], [1], 1, OPTIONS
    ),
    "statistics": lambda pool: stats.add(pool, 1, 1),
    "heartbeat": lambda pool: processes.beat(pool, LIVE, {"info": "{}"}, {}, 60),
    "sweep lock": lambda pool: orphans.take_sweep_lock(pool, ["q"], 60),
    "cleanup lock": lambda pool: processes.prune(pool),
    "signal": lambda pool: processes.send_signal(pool, LIVE, "TERM"),
}  # fmt: skip


@pytest.fixture
def held(redis: redis_py.Redis) -> None:
    """A job that is claimed, one that waits, one that is due, and a process that lives."""
    redis.lpush(LANE.private, JOB)
    redis.lpush(LANE.public, b"waiting", b"next")
    redis.zadd("retry", {b'{"class":"C","args":[],"jid":"due","queue":"r"}': 1})
    redis.sadd("processes", LIVE)
    redis.hset(LIVE, "info", "{}")


def sent(proxy: Proxy) -> list[tuple[bytes, ...]]:
    """Every command so far but greetings."""
    return [tuple(command) for command in list(proxy.commands) if anything(command)]


def warm(act: Callable[[Redis], Any], pool: Redis, redis: redis_py.Redis, proxy: Proxy) -> list[tuple[bytes, ...]]:
    """Run the act twice, so that its script is known, and put the data back; what the second run sent."""
    data = {key: redis.dump(key) for key in redis.scan_iter()}
    for _ in range(2):
        proxy.clear()
        act(pool)
        commands = sent(proxy)
        redis.flushdb()
        for key, value in data.items():
            redis.restore(key, 0, value)
    proxy.clear()
    return commands


def first_of(commands: list[tuple[bytes, ...]]) -> Callable[[Command], bool]:
    return lambda command: command[0] == commands[0][0]


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("name", REPEATED)
def test_an_idempotent_operation_is_sent_again_until_it_is_answered(
    name: str, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    commands = warm(REPEATED[name], through, redis, proxy)
    proxy.on(first_of(commands), LoseReply(), times=2)

    REPEATED[name](through)

    again = [command for command in sent(proxy) if command[0] == commands[0][0]]
    assert len(pauses) == 2
    assert len(again) >= 3


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("name", SENT_ONCE)
def test_any_other_operation_is_sent_once_and_its_lost_answer_is_an_error(
    name: str, redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    commands = warm(SENT_ONCE[name], through, redis, proxy)
    proxy.on(first_of(commands), LoseReply())

    with pytest.raises(RedisUnavailable):
        SENT_ONCE[name](through)

    assert pauses == []
    assert len([command for command in sent(proxy) if command[0] == commands[0][0]]) == 1


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("name", "waiting", "retry", "dead"),
    [
        ("ack flush", 2, 1, 0),
        ("requeue", 3, 1, 0),
        ("drain", 3, 1, 0),
        ("retry", 2, 2, 0),
        ("death", 2, 1, 1),
        ("promote", 2, 0, 0),
        ("kill", 2, 1, 1),
    ],
)
def test_a_replayed_move_leaves_the_job_in_one_place_once(
    name: str, waiting: int, retry: int, dead: int, redis: redis_py.Redis, proxy: Proxy, through: Redis,
    pauses: list[float],
) -> None:  # fmt: skip
    commands = warm(REPEATED[name], through, redis, proxy)
    proxy.on(first_of(commands), LoseReply())

    REPEATED[name](through)

    assert redis.llen(LANE.public) == waiting
    assert redis.zcard("retry") == retry
    assert redis.zcard("dead") == dead
    assert redis.llen(LANE.private) == (1 if name in ("promote", "kill") else 0)
    assert redis.llen("queue:r") == (1 if name == "promote" else 0)


def test_a_scheduled_job_that_is_sent_again_is_one_member(
    redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    proxy.on(anything, LoseReply())

    sorted_sets.schedule(through, [(5.0, JOB), (6.0, b"other")])

    assert redis.zrange("schedule", 0, -1, withscores=True) == [(JOB, 5.0), (b"other", 6.0)]
    assert proxy.count("ZADD") == 2


@pytest.mark.oracle("reliability:C6")
def test_a_signal_whose_answer_was_lost_is_not_taken_twice_and_a_new_one_is_heard(
    redis: redis_py.Redis, proxy: Proxy, through: Redis, pauses: list[float]
) -> None:
    fields = {"info": "{}", "busy": 0}
    processes.beat(through, LIVE, fields, {}, 60)
    processes.send_signal(through, LIVE, "TERM")
    proxy.on(lambda command: command[0] == b"EVALSHA", LoseReply())

    with pytest.raises(RedisUnavailable):
        processes.beat(through, LIVE, fields, {}, 60)

    assert redis.llen(f"{LIVE}-signals") == 0  # taken once, by the beat whose answer was lost
    processes.send_signal(through, LIVE, "TSTP")
    processes.send_signal(through, LIVE, "TTIN")
    assert processes.beat(through, LIVE, fields, {}, 60) == (True, ["TSTP", "TTIN"])
    assert processes.beat(through, LIVE, fields, {}, 60).signals == []
