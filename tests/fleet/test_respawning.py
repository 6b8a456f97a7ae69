"""When a child that died is replaced, when one that hangs is, and when the fleet gives up."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.world import World
from wurk_django.config import Config
from wurk_django.worker import systemd
from wurk_django.worker.fleet.slots import LONGEST_PAUSE_S, STEADY_S, Slot

MakeWorld = Callable[..., World]


@pytest.mark.oracle("reliability:SW2")
def test_a_child_that_crashes_again_and_again_comes_back_after_1_2_4_8_16_30_30_seconds(world: MakeWorld) -> None:
    fleet = world()
    fleet.fate = lambda _pid, now: (now, 1)  # dead before the next tick

    fleet.run(100)

    times = fleet.fork_times
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.oracle("reliability:SW3")
def test_a_child_killed_after_two_minutes_comes_back_after_one_second(world: MakeWorld) -> None:
    fleet = world()
    fleet.fate = lambda pid, now: (now + 2, -9) if pid < 1004 else (now + 120, -9)

    fleet.run(9 + 3 * 122)

    times = fleet.fork_times
    lived = [round(later - earlier, 1) for earlier, later in pairwise(times)]
    assert [round(each) for each in lived[:3]] == [3, 4, 6], "the first deaths were a row"
    assert all(121 <= each <= 121.6 for each in lived[3:6]), "and a steady child ends it"


def test_other_children_are_left_alone_when_one_dies(world: MakeWorld) -> None:
    fleet = world(3)
    fleet.run(5)

    fleet.die(1002)
    fleet.run(3)

    assert fleet.alive == [1001, 1003, 1004]
    assert fleet.sent(signal.SIGTERM) == []
    assert fleet.lookout.buried == [1002]


def test_a_fork_that_fails_is_tried_again_after_a_pause(world: MakeWorld) -> None:
    fleet = world()
    fleet.system.may_fork = False
    fleet.run(2)
    assert fleet.alive == []

    fleet.system.may_fork = True
    fleet.run(2)

    assert len(fleet.alive) == 1
    assert fleet.fork_times == [3.0], "tried at 0 and 1, then after two more seconds"


@given(lives=st.lists(st.floats(0, 200), min_size=1, max_size=40))
def test_pauses_grow_within_their_bounds_and_begin_anew_after_a_steady_life(lives: list[float]) -> None:
    slot, now, before = Slot(0, Config()), 0.0, 0.0
    for lived_s in lives:
        pause_s = slot.put_off(now, lived_s)
        assert slot.due_at == now + pause_s
        assert 1 <= pause_s <= LONGEST_PAUSE_S
        if lived_s >= STEADY_S:
            assert pause_s == 1
        elif before:
            assert pause_s == min(before * 2, LONGEST_PAUSE_S)
        before = pause_s


# --- giving up --------------------------------------------------------------------------------------------------------


def test_the_fleet_gives_up_when_no_child_has_ever_started_after_five_tries_each(world: MakeWorld) -> None:
    fleet = world(2)
    fleet.fate = lambda _pid, now: (now + 0.1, 1)
    fleet.dumb = lambda _pid: True

    assert fleet.run(120)

    assert len(fleet.fork_times) == 10
    assert fleet.fleet._exit_code == 1


def test_the_fleet_goes_on_while_one_child_works(world: MakeWorld) -> None:
    fleet = world(2)
    fleet.run(2)
    fleet.fate = lambda _pid, now: (now + 0.1, 1)
    fleet.dumb = lambda pid: pid > 1002
    fleet.die(1002)

    assert not fleet.run(300)

    assert 1001 in fleet.alive


# --- hanging ----------------------------------------------------------------------------------------------------------


def test_a_child_whose_heart_stands_still_is_ended_and_replaced(world: MakeWorld) -> None:
    fleet = world(2, hung_timeout=60)
    fleet.run(10)
    fleet.stalled.add(1001)
    fleet.run(59)
    assert fleet.sent(signal.SIGTERM) == []

    fleet.run(5)

    assert fleet.sent(signal.SIGTERM, 1001) == [pytest.approx(71.5, abs=1.5)]
    assert fleet.alive == [1002, 1003]


def test_a_hung_child_that_ignores_its_term_is_killed_after_timeout_and_five_seconds(world: MakeWorld) -> None:
    fleet = world(1, hung_timeout=60, timeout=7)
    fleet.system.obedient = False
    fleet.run(2)
    fleet.stalled.add(1001)

    fleet.run(90)

    [ended_at] = fleet.sent(signal.SIGTERM)
    [killed_at] = fleet.sent(signal.SIGKILL)
    assert killed_at - ended_at == pytest.approx(12, abs=0.3)
    assert fleet.alive == [1002]


def test_a_child_that_never_beats_has_thirty_seconds_more(world: MakeWorld) -> None:
    fleet = world(1, hung_timeout=60)
    fleet.dumb = lambda _pid: True

    fleet.run(89)
    assert fleet.sent(signal.SIGTERM) == []
    fleet.run(3)

    assert len(fleet.sent(signal.SIGTERM)) == 1


@pytest.mark.parametrize("option", [0, False])
def test_the_check_can_be_switched_off(option: float, world: MakeWorld) -> None:
    fleet = world(1, hung_timeout=option)
    fleet.dumb = lambda _pid: True

    fleet.run(500)

    assert fleet.sent(signal.SIGTERM) == []


def test_nobody_hangs_while_redis_cannot_be_asked_nor_right_after(world: MakeWorld) -> None:
    fleet = world(2, hung_timeout=60)
    fleet.run(5)
    fleet.stalled |= {1001, 1002}  # they cannot beat
    fleet.redis_is_up = False
    fleet.run(300)
    fleet.redis_is_up = True
    fleet.run(50)
    assert fleet.sent(signal.SIGTERM) == []

    fleet.stalled.clear()
    fleet.run(100)

    assert fleet.sent(signal.SIGTERM) == []


def test_nobody_hangs_while_quiet(world: MakeWorld) -> None:
    fleet = world(1, hung_timeout=60)
    fleet.run(5)
    fleet.say("TSTP")
    fleet.stalled.add(1001)

    fleet.run(300)

    assert fleet.sent(signal.SIGTERM) == []


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_stop_repeats_its_term_and_kills_what_outlives_timeout_and_five_seconds(world: MakeWorld) -> None:
    fleet = world(2, timeout=4)
    fleet.run(3)
    fleet.system.obedient = False

    fleet.say("TERM")
    assert fleet.run(20)

    assert fleet.sent(signal.SIGTERM, 1001) == [float(second) for second in range(3, 12)]
    assert fleet.sent(signal.SIGKILL, 1001) == [12.0]
    assert fleet.fleet._exit_code == 0


@pytest.mark.oracle("reports:P10")
def test_a_second_term_changes_nothing(world: MakeWorld) -> None:
    fleet = world(1, timeout=10)
    fleet.run(3)
    fleet.system.obedient = False
    fleet.say("TERM")
    fleet.run(5)

    fleet.say("TERM")
    fleet.say("INT")
    fleet.run(9)

    assert fleet.sent(signal.SIGKILL) == []
    assert fleet.run(3)
    assert fleet.sent(signal.SIGKILL) == [18.0]


def test_nothing_is_forked_while_stopping(world: MakeWorld) -> None:
    fleet = world(2)
    fleet.run(3)
    fleet.system.obedient = False
    fleet.say("TERM")
    fleet.run(1)
    fleet.die(1001)

    fleet.run(5)

    assert fleet.alive == [1002]


def test_a_burst_ends_when_every_child_has_drained_and_replaces_one_that_crashed(world: MakeWorld) -> None:
    fleet = world(2, burst=True)
    fleet.run(1)
    fleet.die(1001, 0)
    fleet.die(1002, -9)
    assert not fleet.run(0.8)
    fleet.run(2)
    assert fleet.alive == [1003]

    fleet.die(1003, 0)

    assert fleet.run(1)
    assert fleet.fleet._exit_code == 0


# --- what systemd hears -----------------------------------------------------------------------------------------------


def test_systemd_hears_of_the_start_when_half_of_the_children_beat(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(systemd, "notify", heard.append)
    fleet = world(3)
    fleet.dumb = lambda pid: pid > 1001
    fleet.run(5)
    assert heard == []

    fleet.dumb = lambda pid: pid > 1002
    fleet.run(3)
    fleet.say("TERM")
    fleet.run(3)

    assert heard == ["READY=1", "STOPPING=1"]


def test_the_watchdog_is_petted_by_the_loop_itself(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(systemd, "notify", heard.append)
    monkeypatch.setattr(systemd, "watchdog_period_s", lambda: 1.5)
    fleet = world(1)

    fleet.run(10)

    assert heard.count("WATCHDOG=1") == pytest.approx(7, abs=1)
