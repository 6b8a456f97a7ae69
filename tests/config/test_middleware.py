"""The chain: its order, what each entry is given, and how it is run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wurk_django.middleware import Chain

calls: list[Any] = []


class Noting:
    """Notes on the way in and out; made with the arguments of its entry."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def call(self, *arguments: Any) -> Any:
        calls.append((type(self).__name__, *self.arguments))
        try:
            return arguments[-1]()
        finally:
            calls.append(f"/{type(self).__name__}")


class A(Noting): ...


class B(Noting): ...


class C(Noting): ...


class Stopping(Noting):
    def call(self, *arguments: Any) -> Any:
        calls.append("stopped")
        return "stopped"


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def run(chain: Chain) -> Any:
    def final() -> str:
        calls.append("job")
        return "done"

    return chain.invoke(final, "argument")


@pytest.mark.oracle("core:W1")
def test_a_class_that_is_added_twice_stands_once_with_its_second_arguments() -> None:
    chain = Chain()
    chain.add(A, 1)
    chain.add(B)
    chain.add(A, 2)

    run(chain)

    assert list(chain) == [B, A]
    assert calls == [("B",), ("A", 2), "job", "/A", "/B"]


@pytest.mark.oracle("core:W2")
def test_entries_are_put_before_and_after_others() -> None:
    chain = Chain()
    chain.add(A)
    chain.insert_before(A, B)
    chain.insert_after(B, C)

    run(chain)

    assert calls == [("B",), ("C",), ("A",), "job", "/A", "/C", "/B"]


@pytest.mark.oracle("core:W3")
def test_an_entry_that_does_not_call_on_stops_the_rest() -> None:
    chain = Chain()
    chain.add(Stopping)
    chain.add(A)

    assert run(chain) == "stopped"
    assert calls == ["stopped"]


@pytest.mark.parametrize(
    ("change", "order"),
    [
        (lambda chain: chain.prepend(C), [C, A, B]),
        (lambda chain: chain.prepend(B), [B, A]),
        (lambda chain: chain.insert_before(B, C), [A, C, B]),
        (lambda chain: chain.insert_after(A, C), [A, C, B]),
        (lambda chain: chain.insert_before(Stopping, C), [C, A, B]),
        (lambda chain: chain.insert_after(Stopping, C), [A, B, C]),
        (lambda chain: chain.insert_before(A, B), [B, A]),
        (lambda chain: chain.insert_after(B, A), [B, A]),
        (lambda chain: chain.remove(A), [B]),
        (lambda chain: chain.remove(C), [A, B]),
        (lambda chain: chain.clear(), []),
    ],
)
def test_the_order_can_be_changed(change: Any, order: list[type[Any]]) -> None:
    chain = Chain()
    chain.add(A)
    chain.add(B)

    change(chain)

    assert list(chain) == order
    assert len(chain) == len(order)
    assert all(entry in chain for entry in order)
    assert Stopping not in chain


def test_an_entry_that_is_moved_keeps_the_arguments_it_had() -> None:
    chain = Chain()
    chain.add(A, "old")
    chain.add(B)
    chain.insert_after(B, A, "new")

    run(chain)

    assert calls[:2] == [("B",), ("A", "old")]


def test_the_result_is_that_of_the_outermost_entry_and_an_empty_chain_just_runs() -> None:
    assert run(Chain()) == "done"
    chain = Chain()

    class Doubling(Noting):
        def call(self, *arguments: Any) -> Any:
            return [arguments[-1](), arguments[-1]()]

    chain.add(Doubling)
    assert run(chain) == ["done", "done"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_values_that_are_passed_to_the_continuation_are_ignored(count: int) -> None:
    class Chatty(Noting):
        def call(self, *arguments: Any) -> Any:
            return arguments[-1]("extra", 5)

    chain = Chain()
    for _ in range(count):
        chain.add(type("Chatty", (Chatty,), {}))

    assert run(chain) == "done"


def test_every_run_has_instances_of_its_own() -> None:
    numbers = itertools.count()

    class Counted(Noting):
        def __init__(self) -> None:
            super().__init__(next(numbers))

    chain = Chain()
    chain.add(Counted)
    run(chain)
    run(chain)

    assert [call for call in calls if call[0] == "Counted"] == [("Counted", 0), ("Counted", 1)]


def test_an_entry_that_has_a_place_for_the_config_gets_it() -> None:
    seen: list[Any] = []

    class Wanting(Noting):
        config: Any = None

        def call(self, *arguments: Any) -> Any:
            seen.append(self.config)
            return arguments[-1]()

    chain = Chain("config")
    chain.add(Wanting)
    chain.add(A)
    run(chain)
    run(chain.copy_for("capsule"))

    assert seen == ["config", "capsule"]
    assert not hasattr(A(), "config")


def test_a_copy_is_independent_of_its_original() -> None:
    chain = Chain()
    chain.add(A)
    copy = chain.copy_for("capsule")
    copy.add(B)
    chain.remove(A)

    assert list(chain) == []
    assert list(copy) == [A, B]


def test_a_run_keeps_the_chain_it_started_with() -> None:
    chain = Chain()

    class Changing(Noting):
        def call(self, *arguments: Any) -> Any:
            chain.clear()
            return arguments[-1]()

    chain.add(Changing)
    chain.add(A)

    assert run(chain) == "done"
    assert calls == [("A",), "job", "/A"]


def test_an_error_passes_through_every_entry() -> None:
    chain = Chain()
    chain.add(A)
    chain.add(B)

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        chain.invoke(fail)
    assert calls == [("A",), ("B",), "/B", "/A"]


classes = st.sampled_from([A, B, C])
edits = st.one_of(
    st.tuples(st.sampled_from(["add", "prepend", "remove"]), classes),
    st.tuples(st.sampled_from(["insert_before", "insert_after"]), classes, classes),
)


@given(st.lists(edits, max_size=12))
def test_no_edit_doubles_an_entry_or_loses_another(changes: list[tuple[Any, ...]]) -> None:
    chain = Chain()
    present: set[type[Any]] = set()
    for verb, *subjects in changes:
        getattr(chain, verb)(*subjects)
        present = present - {subjects[-1]} if verb == "remove" else present | {subjects[-1]}
        assert set(chain) == present
        assert len(list(chain)) == len(present)
        order = list(chain)
        if verb == "insert_before" and subjects[0] in present and subjects[0] is not subjects[1]:
            assert order.index(subjects[1]) + 1 == order.index(subjects[0])
        if verb == "insert_after" and subjects[0] in present and subjects[0] is not subjects[1]:
            assert order.index(subjects[0]) + 1 == order.index(subjects[1])
