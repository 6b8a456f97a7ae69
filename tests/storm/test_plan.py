"""The enemy's plan: the same seed gives the same one, and it is as it should be."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storm.plan import ACTS, CALM_AT_THE_END_S, OF_THE_SERVER, make_plan

SEEDS = st.integers(0, 1 << 32)


@pytest.mark.oracle("safety:G20")
@given(SEEDS, st.floats(5, 200))
def test_the_same_seed_gives_the_same_plan(seed: int, seconds: float) -> None:
    assert make_plan(seed, seconds) == make_plan(seed, seconds)


@given(SEEDS)
def test_a_minute_holds_every_kind_of_attack(seed: int) -> None:
    assert {act.kind for act in make_plan(seed, 60)} == set(ACTS)


@given(SEEDS, st.floats(5, 200))
def test_attacks_come_in_order_and_the_server_suffers_one_at_a_time(seed: int, seconds: float) -> None:
    plan = make_plan(seed, seconds)

    assert [act.at_s for act in plan] == sorted(act.at_s for act in plan)
    server = [act for act in plan if act.kind in OF_THE_SERVER]
    assert all(act.at_s + act.lasts_s < later.at_s for act, later in pairwise(server))


@given(SEEDS)
def test_two_seeds_differ(seed: int) -> None:
    assert make_plan(seed, 60) != make_plan(seed + 1, 60)


def test_a_storm_ends_in_calm() -> None:
    # An act may wait for the one before it on the server, so the last may come a little late.
    assert max(act.at_s for act in make_plan(7, 60)) <= 60 - CALM_AT_THE_END_S + max(
        most for _, _, most in ACTS.values()
    )
