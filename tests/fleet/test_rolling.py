"""The rolling restart, second by second: no old child ends before its replacement works."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.world import World

MakeWorld = Callable[..., World]


def test_children_are_replaced_one_after_the_other_each_after_its_replacement_has_beaten(world: MakeWorld) -> None:
    fleet = world(3)
    fleet.run(3)

    fleet.say("USR1")
    fleet.run(20)

    assert fleet.alive == [1004, 1005, 1006]
    forked, ended = fleet.fork_times[3:], fleet.sent(signal.SIGTERM)
    assert len(ended) == 3
    for replacement, old in zip(forked, ended, strict=True):
        assert replacement < old
    assert ended[0] < forked[1], "one slot at a time"
    assert ended[1] < forked[2]


@pytest.mark.oracle("reliability:SW1")
def test_a_stop_during_the_restart_ends_old_and_new_and_nothing_more_is_replaced(world: MakeWorld) -> None:
    fleet = world(2)
    fleet.run(3)
    fleet.dumb = lambda pid: pid > 1002
    fleet.say("USR1")
    fleet.run(1)
    assert fleet.alive == [1001, 1002, 1003]

    fleet.say("TERM")

    assert fleet.run(2)
    assert {pid for _at, pid, what in fleet.system.signals if what == signal.SIGTERM} == {1001, 1002, 1003}
    assert len(fleet.fork_times) == 3


@pytest.mark.oracle("reliability:SW5")
def test_a_replacement_that_never_beats_takes_over_after_thirty_seconds_with_a_warning(
    world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = world(1)
    fleet.run(3)
    fleet.dumb = lambda pid: pid == 1002

    fleet.say("USR1")
    fleet.run(29.5)
    assert fleet.sent(signal.SIGTERM) == []
    fleet.run(2)

    assert fleet.sent(signal.SIGTERM, 1001) == [pytest.approx(33, abs=0.5)]
    assert "no heartbeat of child 1002" in caplog.text
    assert fleet.alive == [1002]


@pytest.mark.oracle("reliability:SW6")
def test_a_replacement_that_crashes_at_its_start_leaves_the_old_child_at_work_and_is_tried_again(
    world: MakeWorld,
) -> None:
    fleet = world(1)
    fleet.run(3)
    fleet.dumb = lambda pid: pid in (1002, 1003)
    fleet.fate = lambda pid, now: (now + 0.5, 1) if pid in (1002, 1003) else None

    fleet.say("USR1")
    fleet.run(1.2)
    assert fleet.alive == [1001]
    assert fleet.sent(signal.SIGTERM) == []
    fleet.run(10)

    assert fleet.alive == [1004]
    first, second, third = fleet.fork_times[1:]
    assert second - first == pytest.approx(1 + 0.6, abs=0.3), "after a pause of 1 s"
    assert third - second == pytest.approx(2 + 0.6, abs=0.3), "then of 2 s"
    assert fleet.sent(signal.SIGTERM) == [pytest.approx(third, abs=2.5)]


def test_an_old_child_that_will_not_end_is_killed_once_after_timeout_and_five_seconds(world: MakeWorld) -> None:
    fleet = world(2, timeout=3)
    fleet.run(3)
    fleet.system.obedient = False

    fleet.say("USR1")
    fleet.run(40)

    assert fleet.alive == [1003, 1004]
    for pid in (1001, 1002):
        [ended_at], [killed_at] = fleet.sent(signal.SIGTERM, pid), fleet.sent(signal.SIGKILL, pid)
        assert killed_at - ended_at == pytest.approx(8, abs=0.3)


def test_an_old_child_that_dies_first_is_followed_by_its_replacement(world: MakeWorld) -> None:
    fleet = world(1)
    fleet.run(3)
    fleet.dumb = lambda pid: pid == 1002
    fleet.say("USR1")
    fleet.run(1)

    fleet.die(1001)
    fleet.run(20)

    assert fleet.alive == [1002]
    assert len(fleet.fork_times) == 2


def test_when_old_and_new_are_dead_the_slot_is_filled_as_after_any_crash(world: MakeWorld) -> None:
    fleet = world(1)
    fleet.run(3)
    fleet.dumb = lambda pid: pid == 1002
    fleet.say("USR1")
    fleet.run(1)

    fleet.die(1001)
    fleet.die(1002)
    fleet.run(0.4)
    assert fleet.alive == []
    fleet.run(3)

    assert fleet.alive == [1003]
    assert not fleet.fleet.rolling.active


def test_a_replacement_that_has_taken_over_and_dies_is_an_ordinary_crash(world: MakeWorld) -> None:
    fleet = world(1)
    fleet.run(3)
    fleet.say("USR1")
    fleet.run(5)
    assert fleet.alive == [1002]

    fleet.die(1002)
    fleet.run(2)

    assert fleet.alive == [1003]


def test_asking_twice_replaces_each_child_once(world: MakeWorld) -> None:
    fleet = world(2)
    fleet.run(3)
    fleet.dumb = lambda pid: pid > 1002

    for _ in range(5):
        fleet.say("USR1")
        fleet.run(0.4)
    fleet.dumb = lambda _pid: False
    fleet.run(20)

    assert fleet.alive == [1003, 1004]


def test_children_that_replace_quiet_ones_are_watched_as_the_others(world: MakeWorld) -> None:
    fleet = world(1, hung_timeout=60)
    fleet.run(3)
    fleet.say("USR1")
    fleet.run(5)
    fleet.stalled.add(1002)

    fleet.run(70)

    assert fleet.alive == [1003]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_child_at_the_memory_limit_is_replaced_with_care(world: MakeWorld) -> None:
    fleet = world(3, maxmem_mb=100)
    fleet.system.sizes = {1001: 99 << 20, 1002: 100 << 20, 1003: 5 << 20}

    fleet.run(30)

    assert fleet.alive == [1001, 1003, 1004]
    assert fleet.sent(signal.SIGTERM, 1002)[0] > fleet.fork_times[3]


@pytest.mark.parametrize("limit", [None, 0])
def test_without_a_limit_nobody_is_weighed(limit: float | None, world: MakeWorld) -> None:
    fleet = world(1, maxmem_mb=limit)
    fleet.system.sizes = {1001: 1 << 40}

    fleet.run(60)

    assert fleet.alive == [1001]


# --- laws -------------------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["kill", "restart", "wait", "mute", "unmute", "redis down", "redis up", "no forks", "forks"]),
        st.integers(0, 5),
        st.floats(0.2, 12),
    ),
    max_size=25,
)


@given(count=st.integers(1, 3), events=EVENTS)
def test_whatever_happens_no_working_child_is_ended_without_another_and_the_fleet_is_full_again(
    count: int, events: list[tuple[str, int, float]]
) -> None:
    world = World(count, hung_timeout=0)
    try:
        world.run(2)
        for what, which, seconds in events:
            if what == "kill" and world.alive:
                world.die(world.alive[which % len(world.alive)])
            elif what == "restart":
                world.say("USR1")
            elif what in ("mute", "unmute"):
                world.dumb = (lambda pid: pid % 2 == 0) if what == "mute" else (lambda _pid: False)
            elif what.startswith("redis"):
                world.redis_is_up = what == "redis up"
            elif what.endswith("forks"):
                world.system.may_fork = what == "forks"
            _check_every_tick(world, count, seconds)
        world.redis_is_up, world.system.may_fork, world.dumb = True, True, lambda _pid: False
        world.run(200)
        assert len(world.alive) == count
        assert not world.fleet.rolling.active
        assert sorted(slot.child.pid for slot in world.fleet.slots if slot.child) == world.alive
    finally:
        world.close()


def _check_every_tick(world: World, count: int, seconds: float) -> None:
    until = world.now + seconds
    while world.now < until and not world.over:
        before = set(world.alive)
        told = len(world.system.signals)
        world.run(0.2)
        assert len(world.alive) <= count + 1, "one more than wanted, and only while one is replaced"
        for _at, pid, what in world.system.signals[told:]:
            if what == signal.SIGTERM:
                assert before - {pid}, "the one that is told to go is not the only one of its slot"
