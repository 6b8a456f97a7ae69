"""Jobs whose process dies each time: how often they come back, and what buries them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import Before, LoseReply, LoseRequest, script
from tests.support.proxy import Proxy
from tests.worker.orphans import FOREIGN, alive, left_behind, reaper_behind
from tests.worker.rig import Recorder, Rig, numbered, payload, queued, wait_for
from wurk_django.config import Config, Pill
from wurk_django.errors import Poisoned
from wurk_django.storage import orphans
from wurk_django.worker.reaper import Reaper

draining = script(orphans._drain.sha.decode())
burying = script(orphans._bury_poison.sha.decode())


class Told:
    """What the callbacks and counters of a configuration were told."""

    def __init__(self, config: Config) -> None:
        self.recovered: list[tuple[dict[str, Any], Pill | None]] = []
        self.poison: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}
        config.recovery_callbacks.append(lambda job, pill: self.recovered.append((job, pill)))
        config.poison_callbacks.append(self.poison.append)
        config.counters.append(self._count)

    def _count(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


@pytest.fixture
def config(rig: Rig) -> Config:
    return rig.config(["q"], reaper_grace=0)


@pytest.fixture
def told(config: Config) -> Told:
    return Told(config)


@pytest.fixture
def reaper(config: Config, told: Told) -> Reaper:
    config.freeze()
    return Reaper(config)


def counter_of(raw: bytes) -> str:
    return f"super_fetch:recovered:{json.loads(raw)['jid']}"


def recovered_often(redis: redis_py.Redis, raw: bytes, times: int = 3) -> None:
    redis.set(counter_of(raw), times, ex=1000)


@pytest.mark.oracle("reliability:PP1", "safety:K4")
def test_three_times_a_job_comes_back_and_is_counted(redis: redis_py.Redis, reaper: Reaper, told: Told) -> None:
    job = payload()
    for times in (1, 2, 3):
        redis.lpush(FOREIGN, job)

        assert reaper.sweep() == 1

        assert redis.rpop("queue:q") == job
        assert redis.get(counter_of(job)) == str(times).encode()
        assert 259_000 < redis.ttl(counter_of(job)) <= 259_200
    assert told.recovered == [(json.loads(job), None)] * 3
    assert told.counts == {"jobs.recovered.fetch": 3}


@pytest.mark.oracle("reliability:PP2", "safety:K26", "reports:P07")
def test_the_fourth_time_buries_a_job_and_its_neighbours_come_back(
    redis: redis_py.Redis, reaper: Reaper, rig: Rig, told: Told
) -> None:
    neighbours = numbered(2)
    poison = payload("Killer", 7)
    recovered_often(redis, poison)
    redis.lpush(FOREIGN, neighbours[0], poison, neighbours[1])

    assert reaper.sweep() == 2

    assert queued(redis, "q") == neighbours
    [(member, score)] = redis.zrange("dead", 0, -1, withscores=True)
    assert member == poison, "byte for byte"
    assert not redis.exists(counter_of(poison), FOREIGN)
    [(job, error)] = rig.deaths
    assert job == json.loads(poison)
    assert isinstance(error, Poisoned)
    known = {"jid": job["jid"], "klass": "Killer", "count": 4, "queue": "q"}
    assert told.poison == [known]
    assert told.recovered[-1] == (job, Pill(job["jid"], "Killer", 4, "q", poison, score))
    assert told.counts == {"jobs.recovered.fetch": 2, "jobs.poison": 1}


@pytest.mark.oracle("reliability:PP3")
def test_a_normal_end_starts_the_count_anew(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, reaper: Reaper, config: Config
) -> None:
    jobs.job()
    job = payload(queue="q")
    for _ in range(2):
        redis.lpush(FOREIGN, job)
        assert reaper.sweep() == 1
        redis.delete("queue:q")
    assert redis.get(counter_of(job)) == b"2"

    redis.lpush("queue:q", job)
    rig.manager(config)
    wait_for(lambda: jobs.calls)
    wait_for(lambda: not redis.exists(counter_of(job)))
    rig.close()
    redis.lpush(FOREIGN, job)
    reaper.sweep()

    assert redis.get(counter_of(job)) == b"1"


@pytest.mark.oracle("reliability:PP3")
@pytest.mark.parametrize("retry", [5, 0], ids=["retried", "buried"])
def test_a_failure_that_was_booked_starts_the_count_anew(
    retry: int, redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.failing_job(ValueError("no"))
    job = payload(retry=retry, queue="q")
    recovered_often(redis, job, 2)
    redis.lpush("queue:q", job)

    rig.manager(rig.config(["q"]))

    wait_for(lambda: redis.zcard("retry") + redis.zcard("dead"))
    assert not redis.exists(counter_of(job))


@pytest.mark.oracle("reliability:PP4")
@pytest.mark.parametrize(
    "job",
    [b'{"class":"work","args":[]}', b'{"class":"work","args":[],"jid":""}', b'{"jid":7}', b"[1]", b"{no json", b""],
)
def test_what_has_no_jid_comes_back_uncounted(job: bytes, redis: redis_py.Redis, reaper: Reaper, told: Told) -> None:
    for _ in range(5):
        redis.lpush(FOREIGN, job)
        assert reaper.sweep() == 1
        assert redis.rpop("queue:q") == job

    assert redis.keys("super_fetch:recovered:*") == []
    assert [pill for _, pill in told.recovered] == [None] * 5


@pytest.mark.oracle("reliability:PP5")
def test_poison_that_wants_no_place_among_the_dead_is_gone_after_its_death_handlers(
    redis: redis_py.Redis, reaper: Reaper, rig: Rig, told: Told
) -> None:
    job = payload(dead=False)
    recovered_often(redis, job)
    redis.lpush(FOREIGN, job)

    assert reaper.sweep() == 0

    assert not redis.exists("dead", "queue:q", FOREIGN, counter_of(job))
    assert len(rig.deaths) == 1
    assert told.recovered[0][1] is not None
    assert told.recovered[0][1].score is None


@pytest.mark.oracle("reliability:R15", "safety:K22")
def test_a_reaper_that_ends_between_the_handlers_and_the_burial_leaves_it_to_the_next_one(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy, one_attempt: None
) -> None:
    job = payload()
    recovered_often(redis, job)
    left_behind(redis, FOREIGN, count=1)
    redis.lpush(FOREIGN, job)
    proxy.on(burying, LoseRequest(), times=1)
    reaper = reaper_behind(rig, proxy, reaper_grace=0)

    reaper.sweep()

    assert redis.lrange(FOREIGN, 0, -1) == [job]
    assert redis.get(counter_of(job)) == b"3"
    reaper.sweep()
    assert redis.zrange("dead", 0, -1) == [job]
    assert not redis.exists(FOREIGN)
    assert len(rig.deaths) == 2, "at least once"


@pytest.mark.oracle("safety:C2")
def test_poison_is_not_taken_from_an_owner_that_beats_again(redis: redis_py.Redis, rig: Rig, proxy: Proxy) -> None:
    job = payload()
    recovered_often(redis, job)
    redis.lpush(FOREIGN, job)
    proxy.on(burying, Before(lambda: alive(redis, "elsewhere:4711:ab12cd34ef56")))

    reaper_behind(rig, proxy, reaper_grace=0).sweep()

    assert redis.lrange(FOREIGN, 0, -1) == [job]
    assert not redis.exists("dead")


def test_a_dead_set_of_another_type_keeps_the_poison_where_it_is(
    redis: redis_py.Redis, reaper: Reaper, rig: Rig
) -> None:
    job = payload()
    recovered_often(redis, job)
    redis.lpush(FOREIGN, job)
    redis.set("dead", "text")

    reaper.sweep()

    assert redis.lrange(FOREIGN, 0, -1) == [job]
    assert "WRONGTYPE" in rig.messages()[0]


def test_a_counter_of_another_type_does_not_keep_its_job(redis: redis_py.Redis, reaper: Reaper) -> None:
    [job] = left_behind(redis, FOREIGN, count=1)
    redis.sadd(counter_of(job), "x")

    assert reaper.sweep() == 1

    assert queued(redis, "q") == [job]


def test_the_limit_is_a_setting(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["q"], reaper_grace=0, poison_limit=1)
    config.freeze()
    job = payload()
    redis.lpush(FOREIGN, job)
    assert Reaper(config).sweep() == 1
    redis.delete("queue:q")
    redis.lpush(FOREIGN, job)

    assert Reaper(config).sweep() == 0

    assert redis.zrange("dead", 0, -1) == [job]


def test_callbacks_that_fail_are_told_and_change_nothing(redis: redis_py.Redis, rig: Rig) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken callback")

    config = rig.config(["q"], reaper_grace=0)
    for callbacks in (config.recovery_callbacks, config.poison_callbacks, config.death_handlers):
        callbacks.insert(0, broken)  # type: ignore[attr-defined]
    told = Told(config)
    config.freeze()
    poison, good = payload(), payload()
    recovered_often(redis, poison)
    redis.lpush(FOREIGN, poison, good)

    assert Reaper(config).sweep() == 1

    assert redis.zrange("dead", 0, -1) == [poison]
    assert len(told.poison) == len(rig.deaths) == 1
    assert len(rig.errors) == 4


def test_a_whole_slice_of_poison_that_has_to_stay_does_not_hold_up_what_is_behind_it(
    redis: redis_py.Redis, reaper: Reaper, rig: Rig
) -> None:
    poison, good = numbered(150), numbered(5)
    for job in poison:
        recovered_often(redis, job)
    redis.lpush(FOREIGN, *good, *poison)
    config = rig.config(["q"])
    config.freeze()

    from wurk_django.worker.owners import read_any_owner
    from wurk_django.worker.recovery import Recovery

    owner = read_any_owner(FOREIGN)
    assert owner is not None
    assert Recovery(config).bring_back(FOREIGN, owner, bury=False) == 5

    assert queued(redis, "q") == good
    assert redis.lrange(FOREIGN, 0, -1) == poison[::-1]


@pytest.mark.oracle("reliability:R14", "safety:K22")
@pytest.mark.parametrize(("fault", "moved"), [(LoseRequest(), 0), (LoseReply(), 3)], ids=["before", "after"])
def test_a_reaper_that_ends_around_a_drain_leaves_each_job_in_one_place_and_counts_what_moved(
    fault: LoseRequest | LoseReply, moved: int, redis: redis_py.Redis, rig: Rig, proxy: Proxy, one_attempt: None
) -> None:
    jobs = left_behind(redis, FOREIGN)
    proxy.on(draining, fault)

    reaper_behind(rig, proxy).sweep()

    assert queued(redis, "q") == jobs[:moved]
    assert redis.llen(FOREIGN) == 3 - moved
    assert [redis.get(counter_of(job)) for job in jobs] == [b"1" if moved else None] * 3
