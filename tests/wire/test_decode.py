"""Bytes from Redis are input: they are a job or MalformedPayload, nothing else."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import corpus
from wurk_django import registry, wire
from wurk_django.errors import MalformedPayload, UnknownJob

DEAD = [name for name in corpus.CORPUS if corpus.expect(name) == "dead"]
ALIVE = [name for name in corpus.CORPUS if corpus.expect(name) != "dead"]

any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
    | st.just(10**4200),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)
FIELDS = [
    "class", "args", "jid", "queue", "retry", "retry_count", "kwargs", "failed_at", "retried_at", "created_at",
    "enqueued_at", "at", "backtrace", "error_backtrace", "error_message", "error_class", "retry_queue", "retry_for",
    "dead", "tags", "wrapped", "display_class", "log_level", "bid", "locale", "cattr", "expiry", "encrypt", "other",
]  # fmt: skip


def test_the_corpus_is_large_and_covers_all_three_fates() -> None:
    assert len(corpus.CORPUS) >= 130
    assert {corpus.expect(name) for name in corpus.CORPUS} == {"dead", "fails", "runs"}
    assert len(set(corpus.HOSTILE_NAMES)) >= 32
    assert {name for name in corpus.LAST_ATTEMPT if corpus.expect(name) == "fails"} == corpus.LAST_ATTEMPT


@pytest.mark.oracle("safety:S-01", "safety:S-05", "safety:S-06", "safety:S-07", "safety:S-08")
@pytest.mark.parametrize("name", DEAD)
def test_what_is_no_job_is_refused(name: str) -> None:
    with pytest.raises(MalformedPayload):
        wire.decode_job(corpus.CORPUS[name])


@pytest.mark.oracle("safety:S-08")
@pytest.mark.parametrize("name", ALIVE)
def test_a_job_is_read_however_odd_its_other_fields_are(name: str) -> None:
    payload = wire.decode_job(corpus.CORPUS[name])
    assert (payload["class"] == corpus.JOB) == (corpus.expect(name) == "runs")


@pytest.mark.oracle("safety:S-05")
@pytest.mark.parametrize("name", [name for name in ALIVE if name.startswith(("wide", "deep", "brackets", "long"))])
def test_a_wide_job_is_read_in_200_ms(name: str) -> None:
    def seconds(read: Callable[[bytes], object]) -> float:
        started = time.thread_time()
        read(corpus.CORPUS[name])
        return time.thread_time() - started

    took = min(seconds(wire.decode_job) for _ in range(5))

    # On a machine that is too slow for the figure: not much longer than the bare parser.
    assert took < 0.2 or took < 5 * min(seconds(json.loads) for _ in range(5))


@given(st.binary())
@example(b'{"class":"C","args":[],"jid":"a"}\x00')
def test_random_bytes_are_a_job_or_malformed(raw: bytes) -> None:
    for read in (wire.decode, wire.decode_job):
        try:
            read(raw)
        except MalformedPayload:
            continue


@given(st.sampled_from([corpus.CORPUS["plain"], corpus.CORPUS["odd-tags-of-arrays"]]), st.randoms())
def test_a_job_with_damaged_bytes_is_a_job_or_malformed(raw: bytes, dice: random.Random) -> None:
    damaged = bytearray(raw)
    for _ in range(dice.randint(1, 5)):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    with contextlib.suppress(MalformedPayload):
        wire.decode_job(bytes(damaged))


@pytest.mark.oracle("safety:S-08")
@given(st.sampled_from(FIELDS), any_json)
def test_any_value_in_any_field_is_read_or_malformed_and_nothing_that_reads_fields_raises(
    field: str, value: Any
) -> None:
    raw = json.dumps({"class": "C", "args": [], "jid": "a", field: value}).encode()

    try:
        payload = wire.decode_job(raw)
    except MalformedPayload:
        assert field in ("class", "args", "jid")
        return

    assert type(payload["class"]) is str
    assert type(payload["args"]) is list
    assert type(payload["jid"]) is str
    payload["jid"].encode()
    for name in payload:
        wire.read_time(payload[name])
    wire.unpack_backtrace(payload.get("error_backtrace"))
    wire.is_queue_name(payload.get("queue"))
    wire.name_of(payload)
    registry.get(payload.get("wrapped"))
    assert wire.decode(wire.encode_again(payload)) == payload


@pytest.mark.oracle("safety:S-10")
@pytest.mark.parametrize("field", ["class", "args", "jid", "other"])
def test_of_duplicate_keys_the_last_one_counts(field: str) -> None:
    job = {"class": "C", "args": [], "jid": "a", "other": "first"}
    last = {"class": "D", "args": [2], "jid": "b", "other": "last"}[field]
    raw = json.dumps(job).encode()[:-1] + b"," + json.dumps({field: last}).encode()[1:]

    assert wire.decode_job(raw)[field] == last


def test_the_largest_job_that_is_read_has_eight_mebibytes() -> None:
    empty = len(corpus.render(args=[""]))
    largest = corpus.render(args=["x" * (wire.MAX_CLAIM_BYTES - empty)])
    assert len(largest) == 8 << 20

    assert wire.decode_job(largest)["jid"] == corpus.JID
    with pytest.raises(MalformedPayload, match=r"8,388,609 bytes"):
        wire.decode_job(largest + b" ")


def test_what_was_read_is_named_in_the_refusal_without_repeating_the_payload() -> None:
    for name in DEAD:
        with pytest.raises(MalformedPayload) as refusal:
            wire.decode_job(corpus.CORPUS[name])
        assert 0 < len(str(refusal.value)) < 300
        str(refusal.value).encode()


@pytest.mark.oracle("safety:S-02")
@pytest.mark.parametrize("name", corpus.HOSTILE_NAMES)
def test_a_hostile_class_name_finds_nothing_and_imports_nothing(
    name: str, canary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_jobs", {corpus.JOB: object})

    with pytest.raises(UnknownJob):
        registry.find(name)
    assert registry.get(name) is None

    assert not corpus.was_imported(canary)


@pytest.mark.oracle("safety:S-02")
def test_a_name_that_is_no_text_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_jobs", {corpus.JOB: object})
    for name in (None, 5, [corpus.JOB], {"class": corpus.JOB}, corpus.JOB.encode()):
        assert registry.get(name) is None
    assert registry.get(corpus.JOB) is registry.find(corpus.JOB) is object


def test_the_canary_sings_when_it_is_imported(canary: Any) -> None:
    __import__(f"{corpus.CANARY}.sub")
    assert corpus.was_imported(canary)
