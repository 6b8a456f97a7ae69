"""Queue specifications: names, weights, modes, and the order of a pass."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wurk_django.config import Capsule, Config, parse_queues
from wurk_django.connection import RedisOptions
from wurk_django.errors import ConfigurationError


def capsule(*queues: Any) -> Capsule:
    return Config(redis=RedisOptions("redis://127.0.0.1:1")).capsule("default", queues, 1)


@pytest.mark.oracle("core:F1", "core:F4", "core:D6")
@pytest.mark.parametrize(
    ("given", "expanded", "weights", "mode"),
    [
        (["high", "default", "low"], ["high", "default", "low"], [0, 0, 0], "strict"),
        (["high,3", "default,2", "low,1"], ["high"] * 3 + ["default"] * 2 + ["low"], [3, 2, 1], "weighted"),
        (["a,1", "b,1"], ["a", "b"], [1, 1], "random"),
        (["foo", "bar,2"], ["foo", "bar", "bar"], [0, 2], "weighted"),
        (["foo,3", "bar"], ["foo", "foo", "foo", "bar"], [3, 0], "weighted"),
        (["very_often,2", "seldom,1"], ["very_often", "very_often", "seldom"], [2, 1], "weighted"),
        (["a,2", "b,2"], ["a", "a", "b", "b"], [2, 2], "weighted"),
        (["a,1"], ["a"], [1], "random"),
        (["a", "b,1"], ["a", "b"], [0, 1], "weighted"),
        (["a", "b", "a"], ["a", "b"], [0, 0], "strict"),
        ([["a", 3], ("b", 1), ["c"]], ["a", "a", "a", "b", "c"], [3, 1, 0], "weighted"),
        ([["a", "3"]], ["a", "a", "a"], [3], "weighted"),
        ([], [], [], "strict"),
    ],
)  # fmt: skip
def test_a_specification_is_expanded_by_its_weights(
    given: list[Any], expanded: list[str], weights: list[int], mode: str
) -> None:
    spec = parse_queues(given)

    assert list(spec.expanded) == expanded
    assert list(spec.weights.values()) == weights
    assert spec.mode == mode
    assert list(spec.names) == list(dict.fromkeys(expanded))


@pytest.mark.parametrize(
    ("entry", "weight"),
    [("a", 0), ("a,", 0), ("a,x", 0), ("a,3x", 3), ("a, 3", 3), ("a,-2", 0), ("a,2.9", 2), (" a ,2", 2), ("a,0", 0)],
)
def test_a_weight_is_read_leniently(entry: str, weight: int) -> None:
    assert parse_queues([entry]).weights == {"a": weight}


@pytest.mark.parametrize("entry", ["", " ", ",3", ["", 3]])
def test_a_queue_needs_a_name(entry: Any) -> None:
    with pytest.raises(ConfigurationError, match="a queue needs a name"):
        parse_queues([entry])


names = st.text("abcd", min_size=1, max_size=2)
weights = st.integers(0, 5)


@given(st.lists(st.tuples(names, weights), unique_by=lambda pair: pair[0], max_size=6))
def test_every_queue_stands_in_the_expanded_list_as_often_as_its_weight_says(pairs: list[tuple[str, int]]) -> None:
    spec = parse_queues([f"{name},{weight}" for name, weight in pairs])

    assert Counter(spec.expanded) == {name: max(weight, 1) for name, weight in pairs}
    assert spec == parse_queues(pairs)
    if spec.mode == "strict":
        assert all(weight == 0 for _, weight in pairs)
    elif spec.mode == "random":
        assert all(weight == 1 for _, weight in pairs)


def test_strict_queues_are_always_asked_in_their_order() -> None:
    strict = capsule("c", "a", "b")
    assert all(strict.fetch_order() == ["c", "a", "b"] for _ in range(50))


@pytest.mark.parametrize(
    ("queues", "shares"),
    [(["a,6", "b,3", "c,1"], {"a": 0.6, "b": 0.3, "c": 0.1}), (["a,1", "b,1"], {"a": 0.5, "b": 0.5})],
)
def test_a_queue_comes_first_as_often_as_its_share_of_the_weights(queues: list[str], shares: dict[str, float]) -> None:
    random.seed(8)
    weighted = capsule(*queues)
    orders = [weighted.fetch_order() for _ in range(5000)]

    assert all(sorted(order) == sorted(shares) for order in orders)
    first = Counter(order[0] for order in orders)
    for name, share in shares.items():
        assert abs(first[name] / 5000 - share) < 0.03
