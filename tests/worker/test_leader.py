"""Leadership as a process sees it: who leads, who takes over, and when a claim to lead ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import LoseReply, LoseRequest, script
from tests.support.processes import PythonProcess, eventually
from tests.support.proxy import Proxy
from tests.worker.rig import Rig, stays, wait_for
from wurk_django.config import Config, Running
from wurk_django.storage import leader as storage
from wurk_django.worker import identity, leader
from wurk_django.worker.leader import Leader, may_lead

LOCK = "dear-leader"
ME = identity.identity()


class Clock:
    """The monotonic clock of a test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leader, "monotonic", clock)
    return clock


class Candidates:
    """Leaders that a test lets campaign by hand, with the events that they fired."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._made: list[Leader] = []
        self.events: list[str] = []

    def __call__(self, name: str = "a:1:x", config: Config | None = None, **options: Any) -> Leader:
        config = config or self._rig.config(**options)
        config.hooks.on("leader", lambda: self.events.append(name))
        self._made.append(Leader(config, name))
        return self._made[-1]

    def close(self) -> None:
        for made in self._made:
            made.stop()


@pytest.fixture
def candidate(rig: Rig) -> Iterator[Candidates]:
    candidates = Candidates(rig)
    yield candidates
    candidates.close()


# --- gain and loss ----------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:L1", "reliability:L2")
def test_a_new_leader_numbers_its_term_and_fires_its_event_once(redis: redis_py.Redis, candidate: Candidates) -> None:
    a = candidate()
    assert not a.is_leader()

    a.campaign()
    a.campaign()

    assert a.is_leader()
    assert a.token == 1
    assert redis.get("leader-token") == b"1"
    assert candidate.events == ["a:1:x"]
    assert redis.get(LOCK) == b"a:1:x"


@pytest.mark.oracle("reliability:L3")
def test_a_leader_that_comes_late_to_its_renewal_steps_down(redis: redis_py.Redis, candidate: Candidates) -> None:
    a, b = candidate(), candidate("b:2:y")
    a.campaign()
    redis.delete(LOCK)
    b.campaign()
    redis.pexpire(LOCK, 20_000)

    a.campaign()

    assert (a.is_leader(), a.token) == (False, None)
    assert (b.is_leader(), b.token) == (True, 2)
    assert redis.get(LOCK) == b"b:2:y"
    assert redis.pttl(LOCK) <= 20_000
    assert candidate.events == ["a:1:x", "b:2:y"]


@pytest.mark.oracle("reliability:L4")
def test_a_stop_releases_our_own_lock_only(redis: redis_py.Redis, candidate: Candidates) -> None:
    a, b = candidate(), candidate("b:2:y")
    a.campaign()
    redis.delete(LOCK)
    b.campaign()

    a.stop()
    assert redis.get(LOCK) == b"b:2:y"

    b.stop()
    assert not redis.exists(LOCK)
    assert not b.is_leader()


@pytest.mark.oracle("reliability:L7")
def test_a_leader_that_died_before_its_event_is_followed_by_a_term_with_a_larger_number(
    redis: redis_py.Redis, candidate: Candidates
) -> None:
    # given: a lock, and a term that was numbered or was not
    for before in (None, 7):
        redis.flushall()
        redis.set(LOCK, "dead:9:z", px=30)
        if before is not None:
            redis.set("leader-token", before)
        b = candidate(f"b:{before}:y")

        def leads(b: Leader = b) -> bool:
            b.campaign()
            return b.is_leader()

        wait_for(leads)

        assert b.token == (before or 0) + 1


def test_an_event_handler_that_fails_is_reported_and_the_process_leads_all_the_same(
    rig: Rig, candidate: Candidates
) -> None:
    def fail() -> None:
        raise ValueError("in a hook")

    config = rig.config()
    config.hooks.on("leader", fail)
    a = candidate(config=config)

    a.campaign()

    assert a.is_leader()
    assert rig.messages() == ["leader handler: in a hook"]
    assert candidate.events == ["a:1:x"]


# --- what is believed, and for how long -------------------------------------------------------------------------------


@pytest.mark.oracle("safety:C3")
def test_a_leader_that_was_stopped_beyond_its_lock_does_not_lead_when_it_wakes(
    redis: redis_py.Redis, candidate: Candidates, clock: Clock
) -> None:
    a, b = candidate(), candidate("b:2:y")
    a.campaign()
    assert a.is_leader()

    # when: it stands still, its lock lapses and another takes over
    clock.now += 31
    redis.delete(LOCK)
    b.campaign()

    # then: it knows before it has asked anybody
    commands = redis.info("commandstats").get("cmdstat_get", {}).get("calls", 0)
    assert not a.is_leader()
    assert redis.info("commandstats").get("cmdstat_get", {}).get("calls", 0) == commands
    a.campaign()
    assert not a.is_leader()
    assert redis.get(LOCK) == b"b:2:y"


def test_a_claim_ends_one_time_to_live_after_the_last_renewal_was_asked_for(
    rig: Rig, candidate: Candidates, clock: Clock, proxy: Proxy
) -> None:
    a = candidate(config=rig.config(url=proxy.url))
    a.campaign()
    proxy.refuse = True
    proxy.reset_all()

    clock.now += 29
    with pytest.raises(Exception, match="cannot connect"):
        a.campaign()
    assert a.is_leader(), "Redis may be back in time"

    clock.now += 1.5
    assert (a.is_leader(), a.token) == (False, None)


def test_what_redis_says_is_believed_for_five_seconds(
    redis: redis_py.Redis, candidate: Candidates, clock: Clock
) -> None:
    a = candidate()
    a.campaign()
    redis.set(LOCK, "b:2:y")

    clock.now += 4.9
    assert a.is_leader()
    clock.now += 0.2
    assert not a.is_leader()

    redis.set(LOCK, "a:1:x")
    clock.now += 4.9
    assert not a.is_leader()
    clock.now += 0.2
    assert a.is_leader()


def test_a_claim_that_ends_while_redis_is_asked_is_over(
    candidate: Candidates, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = candidate()
    a.campaign()
    clock.now += 28

    def slowly(*_: Any) -> str:
        clock.now += 2.5
        return "a:1:x"

    monkeypatch.setattr(storage, "current", slowly)

    assert not a.is_leader()


def test_the_pace_of_campaigns(redis: redis_py.Redis, rig: Rig, candidate: Candidates, proxy: Proxy) -> None:
    a = candidate(config=rig.config(url=proxy.url))
    redis.script_load(storage._campaign.source)

    redis.set(LOCK, "b:2:y")
    a.campaign()
    assert a.wait_s() == 5, "a follower"

    redis.delete(LOCK)
    a.campaign()
    assert a.wait_s() == 15, "a leader"

    proxy.on(script(storage._campaign.sha.decode()), LoseRequest())
    with pytest.raises(Exception, match="did not answer"):
        a.campaign()
    assert a.wait_s() == 5, "a leader whose renewal failed"


def test_a_lock_whose_answer_was_lost_is_released_at_the_stop(
    redis: redis_py.Redis, rig: Rig, candidate: Candidates, proxy: Proxy
) -> None:
    a = candidate(config=rig.config(url=proxy.url))
    redis.script_load(storage._campaign.source)
    proxy.on(script(storage._campaign.sha.decode()), LoseReply())
    with pytest.raises(Exception, match="did not answer"):
        a.campaign()
    assert redis.get(LOCK) == b"a:1:x"

    a.stop()

    assert not redis.exists(LOCK)


def test_another_key_is_another_leader(redis: redis_py.Redis, candidate: Candidates) -> None:
    redis.set(LOCK, "a ruby process")
    a = candidate(leader_key="python-leader")

    a.campaign()

    assert a.is_leader()
    assert redis.get("python-leader") == b"a:1:x"


# --- opting out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "allowed"),
    [
        ({}, True),
        ({"SIDEKIQ_LEADER": "false"}, False),
        ({"WURK_LEADER": " FALSE "}, False),
        ({"WURK_LEADER": "true", "SIDEKIQ_LEADER": "false"}, True),
        ({"WURK_LEADER": "", "SIDEKIQ_LEADER": "False"}, False),
        ({"SIDEKIQ_LEADER": "0"}, True),
    ],
)
def test_who_may_lead(environment: dict[str, str], allowed: bool) -> None:
    assert may_lead(environment) is allowed


@pytest.mark.oracle("reliability:L6")
def test_a_process_that_opted_out_never_campaigns(
    redis: redis_py.Redis, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDEKIQ_LEADER", "False")

    launcher = rig.launcher(leader_interval=0.02)

    assert stays(lambda: not redis.exists(LOCK), 0.3)
    assert not launcher.leader.is_leader()
    launcher.stop()
    assert not redis.exists(LOCK, "leader-token")


# --- in a worker ------------------------------------------------------------------------------------------------------


def test_a_worker_leads_while_it_is_quiet_and_its_components_may_ask_until_they_have_ended(
    redis: redis_py.Redis, rig: Rig
) -> None:
    asked: list[Callable[[], bool]] = []
    seen_at_stop: list[bool] = []

    class Asking:
        def __init__(self, running: Running) -> None:
            asked.append(running.is_leader)

        def start(self) -> None: ...

        def quiet(self) -> None: ...

        def stop(self) -> None:
            seen_at_stop.append(asked[0]())

    config = rig.config(leader_ttl=2, leader_interval=0.05)
    config.component_makers.append(lambda running: (Asking(running),))
    launcher = rig.launcher(config)
    wait_for(asked[0])
    assert redis.get(LOCK).decode() == ME

    launcher.quiet()
    redis.pexpire(LOCK, 1200)
    wait_for(lambda: redis.pttl(LOCK) > 1300, what="the renewal of a quiet leader")

    launcher.stop()
    assert seen_at_stop == [True]
    assert not redis.exists(LOCK)
    assert not asked[0]()


FOLLOWER = """
import sys, time
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker.leader import Leader
config = Config(Options(leader_ttl=1, leader_interval=0.2), RedisOptions(sys.argv[1]))
config.hooks.on("leader", lambda: print("leads", flush=True))
leader = Leader(config, sys.argv[2])
leader.start()
while True:
    time.sleep(0.05)
"""


@pytest.mark.oracle("reliability:L5", "safety:K21")
def test_a_leader_that_was_killed_is_replaced_within_its_time_to_live_and_one_try(
    redis: redis_py.Redis, redis_url: str, tmp_path: Path
) -> None:
    # given: a leader and a follower
    program = tmp_path / "leading.py"
    program.write_text(FOLLOWER)
    candidates: list[PythonProcess] = []
    try:
        for name in ("first", "second"):
            candidates.append(PythonProcess([str(program), redis_url, name], {}, tmp_path / name))
            eventually(lambda: redis.get(LOCK) == b"first")
        # when
        candidates[0].kill()
        killed_at = time.monotonic()
        # then
        eventually(lambda: "leads" in candidates[1].output, 5)
        took_s = time.monotonic() - killed_at
        print(f"takeover {took_s:.2f} s of 1.2 s")
        assert took_s <= 1 + 0.2 + 0.5, "its time to live, one interval, and slack for a busy machine"
        assert redis.get(LOCK) == b"second"
        assert int(redis.get("leader-token")) == 2
    finally:
        for each in candidates:
            each.close()


@pytest.mark.oracle("safety:C3")
def test_a_leader_that_slept_through_its_lock_does_not_take_it_back(
    redis: redis_py.Redis, redis_url: str, tmp_path: Path
) -> None:
    program = tmp_path / "leading.py"
    program.write_text(FOLLOWER)
    first = PythonProcess([str(program), redis_url, "first"], {}, tmp_path / "first")
    second = None
    try:
        eventually(lambda: redis.get(LOCK) == b"first")
        first.send(signal.SIGSTOP)
        second = PythonProcess([str(program), redis_url, "second"], {}, tmp_path / "second")
        eventually(lambda: redis.get(LOCK) == b"second", 5)

        first.send(signal.SIGCONT)

        assert stays(lambda: redis.get(LOCK) == b"second", 1)
        assert first.output.split() == ["leads"]
    finally:
        for each in filter(None, (first, second)):
            each.close()
