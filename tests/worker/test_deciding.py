"""What becomes of a failed job: the decision alone, without Redis."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.rig import QUICK
from wurk_django import clock, wire
from wurk_django.jobs import Job
from wurk_django.worker.retry import Bury, Drop, Failure, Retry, backtrace_of, class_of, decide, message_of

NOW_MS = 1_700_000_000_000
BOOM = ValueError("boom")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS)
    monkeypatch.setattr(clock, "now_s", lambda: NOW_MS / 1000)


class Plain(Job, name="deciding.Plain"):
    def perform(self) -> None: ...


def class_with(name: str, hook: Callable[..., Any]) -> type[Job]:
    """A job class with one hook."""
    body = {"perform": lambda self: None, name: staticmethod(hook)}
    return type("Hooked", (Job,), body, name=f"deciding.{name}.{id(hook)}")


def decided(
    job_class: type[Job] | None = Plain,
    error: BaseException = BOOM,
    uniform: Callable[[int], int] = lambda _: 0,
    report: Callable[[BaseException, str], None] = lambda *_: None,
    max_retries: int = 25,
    **fields: Any,
) -> Retry | Bury | Drop:
    payload = {"class": "deciding.Plain", "args": [], "jid": "j", "retry": True, "queue": "default", **fields}
    payload = {name: value for name, value in payload.items() if value is not ...}
    return decide(
        Failure(payload, "fetched", error, job_class),
        replace(QUICK, max_retries=max_retries),
        report,
        uniform=uniform,
    )


@pytest.mark.oracle("core:R1")
def test_a_first_failure_is_counted_as_none_and_stamped_in_milliseconds() -> None:
    decision = decided()

    assert isinstance(decision, Retry)
    assert decision.payload["retry_count"] == 0
    assert decision.payload["failed_at"] == NOW_MS
    assert "retried_at" not in decision.payload
    assert decision.payload["error_class"] == "ValueError"
    assert decision.payload["error_message"] == "boom"
    assert decision.payload["queue"] == "fetched", "the queue it came from"
    assert decision.delay_s == 15


@pytest.mark.oracle("core:R2")
def test_a_later_failure_counts_on_and_keeps_the_first_time() -> None:
    decision = decided(retry_count=10, failed_at=123)

    assert isinstance(decision, Retry)
    assert (decision.payload["retry_count"], decision.payload["failed_at"]) == (11, 123)
    assert decision.payload["retried_at"] == NOW_MS
    assert decision.delay_s == 11**4 + 15


@pytest.mark.parametrize(
    ("count", "delay_s", "jitter_s"),
    [(0, 15, 9), (1, 16, 19), (2, 31, 29), (3, 96, 39), (4, 271, 49), (5, 640, 59), (10, 10_015, 109),
     (15, 50_640, 159), (20, 160_015, 209), (24, 331_791, 249)],
)  # fmt: skip
def test_the_delays_are_those_of_sidekiq(count: int, delay_s: int, jitter_s: int) -> None:
    before = {} if count == 0 else {"retry_count": count - 1}

    least = decided(**before)
    most = decided(uniform=lambda bound: bound - 1, **before)

    assert isinstance(least, Retry)
    assert isinstance(most, Retry)
    assert (least.delay_s, most.delay_s) == (delay_s, delay_s + jitter_s)


@given(st.integers(0, 10**6), st.integers(0, 10**30))
def test_delays_grow_and_stay_bounded(count: int, more: int) -> None:
    sooner = decided(retry_count=count, retry=10**40)
    later = decided(retry_count=count + more, retry=10**40)

    assert isinstance(sooner, Retry)
    assert isinstance(later, Retry)
    assert 15 <= sooner.delay_s <= later.delay_s <= 10**12


@pytest.mark.oracle("core:R3")
def test_the_twenty_sixth_failure_buries() -> None:
    assert isinstance(decided(retry_count=23), Retry)
    assert isinstance(decided(retry_count=25), Bury)


@pytest.mark.oracle("core:R4")
def test_the_configured_maximum_counts_where_the_job_names_none() -> None:
    fields: dict[str, Any] = {}
    decisions = []
    for _ in range(8):
        decision = decided(max_retries=7, **fields)
        fields = {"retry_count": decision.payload["retry_count"]}
        decisions.append(type(decision))

    assert decisions == [Retry] * 7 + [Bury]


def test_a_number_of_the_job_beats_the_configured_maximum() -> None:
    assert isinstance(decided(retry=2, retry_count=0), Retry)
    assert isinstance(decided(retry=2, retry_count=1), Bury)


@pytest.mark.oracle("core:R5")
def test_without_retries_nothing_is_stored() -> None:
    assert isinstance(decided(retry=False), Drop)


@pytest.mark.oracle("core:R6")
def test_zero_retries_bury_at_once_unless_the_job_is_not_to_be_kept() -> None:
    assert isinstance(decided(retry=0), Bury)
    dropped = decided(retry=0, dead=False)
    assert isinstance(dropped, Drop)
    assert dropped.payload["discarded_at"] == NOW_MS


@pytest.mark.oracle("core:R7")
def test_a_time_budget_ends_the_retries() -> None:
    assert isinstance(decided(retry_for=60), Retry)
    assert isinstance(decided(retry_for=60, retry_count=0, failed_at=NOW_MS - 59_000), Retry)
    assert isinstance(decided(retry_for=60, retry_count=0, failed_at=NOW_MS - 61_000), Bury)
    assert isinstance(decided(retry_for=60, retry_count=0, failed_at=NOW_MS / 1000 - 61), Bury), "Sidekiq 7 wrote it"


@pytest.mark.oracle("core:R8")
def test_a_time_budget_replaces_the_count() -> None:
    assert isinstance(decided(retry_for=3600, retry_count=5, failed_at=NOW_MS, max_retries=2), Retry)


@pytest.mark.oracle("core:R9")
def test_retries_can_have_a_queue_of_their_own() -> None:
    assert decided(retry_queue="low").payload["queue"] == "low"


@pytest.mark.parametrize("name", ["", "a|b", "x\n", "x" * 201, 5, None, ["low"]])
def test_a_retry_queue_that_is_no_queue_name_is_ignored(name: Any) -> None:
    assert decided(retry_queue=name).payload["queue"] == "fetched"


@pytest.mark.oracle("core:D23", "core:R16")
def test_a_job_without_the_retry_key_is_retried_by_its_class_or_else_by_default() -> None:
    class Twice(Job, name="deciding.Twice", retry=1):
        def perform(self) -> None: ...

    assert isinstance(decided(None, retry=...), Retry)
    assert isinstance(decided(None, retry=None), Retry)
    assert isinstance(decided(Twice, retry=..., retry_count=0), Bury), "its class says 1"


@pytest.mark.oracle("core:R10")
@pytest.mark.parametrize(
    ("answer", "delay_s"),
    [(10, 10), (2.9, 2), ("7", 7), (timedelta(minutes=1), 60), (0, 15), (-3, 15), (None, 15), ("default", 15),
     (0.5, 15), ("soon", 15), (True, 15), (float("nan"), 15), (float("inf"), 15), ([], 15), (10**400, 15)],
)  # fmt: skip
def test_a_hook_may_choose_the_delay(answer: Any, delay_s: int) -> None:
    asked: list[Any] = []
    job_class = class_with("retry_in", lambda *args: asked.append(args) or answer)

    decision = decided(job_class)
    with_jitter = decided(job_class, uniform=lambda bound: bound - 1)

    assert isinstance(decision, Retry)
    assert isinstance(with_jitter, Retry)
    assert decision.delay_s == delay_s
    assert with_jitter.delay_s == delay_s + 9
    assert asked[0][:2] == (0, BOOM)


def test_a_hook_may_kill_or_discard() -> None:
    assert isinstance(decided(class_with("retry_in", lambda *_: "kill")), Bury)
    discarded = decided(class_with("retry_in", lambda *_: "discard"))
    assert isinstance(discarded, Drop)
    assert discarded.payload["discarded_at"] == NOW_MS
    assert isinstance(decided(class_with("retries_exhausted", lambda *_: "discard"), retry=0), Drop)


@pytest.mark.oracle("core:R15")
def test_a_broken_hook_is_told_and_means_the_default() -> None:
    told: list[BaseException] = []

    def report(error: BaseException, _context: str) -> None:
        told.append(error)

    decision = decided(class_with("retry_in", lambda *_: 1 / 0), report=report)
    assert isinstance(decision, Retry)
    assert decision.delay_s == 15
    assert isinstance(decided(class_with("retries_exhausted", lambda *_: 1 / 0), report=report, retry=0), Bury)
    assert [type(error) for error in told] == [ZeroDivisionError] * 2


def test_only_the_hooks_of_a_wrapped_class_are_asked() -> None:
    adapter = class_with("retry_in", lambda *_: "kill")

    assert isinstance(decided(adapter, wrapped="deciding.Plain"), Retry)
    assert isinstance(decided(adapter, wrapped="deciding.nobody"), Retry)


@pytest.mark.oracle("core:R17")
def test_the_exhausted_hook_is_called_at_the_last_failure_only() -> None:
    called: list[Any] = []
    job_class = class_with("retries_exhausted", lambda payload, error: called.append((payload["jid"], error)))

    decided(job_class, retry=3, retry_count=1)
    assert called == []
    decided(job_class, retry=3, retry_count=2)
    assert called == [("j", BOOM)]


# --- what is stored of an error ---------------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.oracle("core:R13")
def test_a_message_that_is_no_utf8_is_stored_with_one_mark_for_each_bad_byte() -> None:
    assert message_of(ValueError(b"caf\xc3".decode("utf-8", "surrogateescape"))) == "caf\ufffd"


@pytest.mark.oracle("core:R14")
def test_a_message_is_cut_after_ten_thousand_characters() -> None:
    assert message_of(ValueError("x" * 50_000)) == "x" * 10_000
    assert message_of(ValueError("é" * 20_000)) == "é" * 10_000
    assert len(message_of(ValueError("\udcc3" * 20_000))) == 10_000


def test_an_error_without_a_text_is_stored_all_the_same() -> None:
    assert message_of(Unprintable()) == "!!! ERROR MESSAGE THREW AN ERROR !!!"


def test_the_class_of_an_error_is_bare_for_builtins_and_else_has_its_module() -> None:
    assert class_of(ValueError()) == "ValueError"
    assert class_of(json.JSONDecodeError("", "", 0)) == "json.decoder.JSONDecodeError"
    assert class_of(Unprintable()) == f"{__name__}.Unprintable"


def test_a_backtrace_is_stored_innermost_first_and_cut_from_the_outside() -> None:
    def inner() -> None:
        raise ValueError("deep")

    try:
        inner()
    except ValueError as error:
        lines = backtrace_of(error)
        stored = decided(error=error, backtrace=1).payload["error_backtrace"]
        everything = decided(error=error, backtrace=True).payload["error_backtrace"]

    assert lines[0].endswith("in 'inner'")
    assert lines[-1].endswith("backtrace_is_stored_innermost_first_and_cut_from_the_outside'")
    assert wire.unpack_backtrace(stored) == lines[:1]
    assert wire.unpack_backtrace(everything) == lines
    assert "error_backtrace" not in decided().payload


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["retry", "retry_count", "retry_for", "failed_at", "retry_queue", "backtrace", "dead", "wrapped", "queue",
          "tags", "retried_at", "error_message", "kwargs"]  # fmt: skip


@pytest.mark.oracle("safety:S-08")
@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_any_value_in_any_field_leads_to_a_decision_that_can_be_stored(fields: dict[str, Any]) -> None:
    decision = decided(**fields)

    assert json.loads(wire.encode_again(decision.payload)) is not None
    if isinstance(decision, Retry):
        assert 1 <= decision.delay_s <= 10**12 + 10_010
    if not isinstance(decision, Drop):
        assert wire.is_queue_name(decision.payload["queue"])
        assert decision.payload["retry_count"] >= 0
