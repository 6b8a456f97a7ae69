"""Pushes that wait for a commit: fixed and checked at once, sent when the transactions have ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import redis as redis_py

from tests.client.conftest import Stored
from wurk_django import wire
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import InvalidJob
from wurk_django.jobs import Job


@dataclasses.dataclass
class Transactions:
    """Open transactions, by the alias of their database; None is asked about any."""

    open: set[str] = dataclasses.field(default_factory=set)
    waiting: list[tuple[Callable[[], object], str | None]] = dataclasses.field(default_factory=list)

    def is_open(self, using: str | None) -> bool:
        return bool(self.open) if using is None else using in self.open

    def after_commit(self, send: Callable[[], object], using: str | None) -> None:
        self.waiting.append((send, using))

    def commit(self) -> None:
        self.open.clear()
        for send, _ in self.waiting:
            send()
        self.waiting.clear()

    def roll_back(self) -> None:
        self.open.clear()
        self.waiting.clear()


@pytest.fixture
def transactions(config: Config) -> Transactions:
    config.defer = Transactions()
    return config.defer


@pytest.mark.parametrize("at", [None, 2_000_000_000])
def test_a_push_inside_a_transaction_leaves_after_the_commit(
    at: float | None, client: Client, transactions: Transactions, stored: Stored
) -> None:
    transactions.open.add("default")
    item = {"class": "Foo", "args": [1], **({"at": at} if at else {})}

    jid = client.push(item)
    [bulk] = client.push_bulk({**item, "args": [[2]]})
    assert stored.keys() == []
    transactions.commit()

    jobs = [job for job, _ in stored.schedule()] if at else stored.queue()
    assert {job["jid"] for job in jobs} == {jid, bulk}
    assert all(score == at for _, score in stored.schedule())


def test_a_rollback_leaves_nothing(client: Client, transactions: Transactions, stored: Stored) -> None:
    transactions.open.add("default")
    assert client.push({"class": "Foo", "args": []})
    transactions.roll_back()
    assert stored.keys() == []


def test_without_a_transaction_a_push_leaves_at_once(
    client: Client, transactions: Transactions, stored: Stored
) -> None:
    client.push({"class": "Foo", "args": []})
    assert len(stored.queue()) == 1
    assert transactions.waiting == []


def test_what_would_be_refused_is_refused_inside_the_transaction(
    make_config: Any, transactions: Transactions, stored: Stored
) -> None:
    config = make_config(on_complex_arguments="off")
    config.defer = transactions
    transactions.open.add("default")

    for args in ([object()], [float("nan")], ["x" * wire.MAX_JOB_BYTES], ["\ud800"]):
        with pytest.raises(InvalidJob):
            Client(config).push({"class": "Foo", "args": args})

    assert transactions.waiting == []


def test_a_job_just_under_the_limit_is_not_refused_at_the_commit(
    client: Client, transactions: Transactions, stored: Stored
) -> None:
    """The commit adds `enqueued_at`; the check inside the transaction counts it."""
    transactions.open.add("default")
    accepted = 0
    for length in range(wire.MAX_JOB_BYTES - 200, wire.MAX_JOB_BYTES, 4):
        try:
            client.push({"class": "Foo", "args": ["x" * length]})
            accepted += 1
        except InvalidJob:
            break

    transactions.commit()

    assert accepted > 1
    assert len(stored.raw()) == accepted


def test_what_the_caller_changes_before_the_commit_changes_no_job(
    client: Client, transactions: Transactions, stored: Stored
) -> None:
    transactions.open.add("default")
    args: list[Any] = [{"rows": [1]}]
    item: dict[str, Any] = {"class": "Foo", "args": args, "tags": ["a"]}
    client.push(item)
    client.push_bulk({**item, "args": [args]})

    args[0]["rows"].append(object())
    args.append("more")
    item["tags"].append("b")
    transactions.commit()

    assert [(job["args"], job["tags"]) for job in stored.queue()] == [([{"rows": [1]}], ["a"])] * 2


def test_enqueued_at_is_the_time_of_the_commit(
    client: Client, transactions: Transactions, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions.open.add("default")
    monkeypatch.setattr(wire.clock, "now_ms", lambda: 1_000)
    client.push({"class": "Foo", "args": []})
    monkeypatch.setattr(wire.clock, "now_ms", lambda: 5_000)
    transactions.commit()

    assert (stored.one()["created_at"], stored.one()["enqueued_at"]) == (1_000, 5_000)
    assert list(stored.one()) == ["retry", "queue", "class", "args", "jid", "created_at", "enqueued_at"]


def test_a_database_can_be_named_by_push_or_class(client: Client, transactions: Transactions, stored: Stored) -> None:
    class Billing(Job, name="Billing", using="billing"):
        def perform(self) -> None: ...

    transactions.open.add("default")
    Billing.perform_async()
    client.push({"class": "Foo", "args": [], "using": "other"})
    assert len(stored.queue()) == 2

    transactions.open.add("billing")
    Billing.perform_async()
    client.push({"class": "Foo", "args": [], "using": "default"})
    assert [using for _, using in transactions.waiting] == ["billing", "default"]
    assert len(stored.queue()) == 2


@pytest.mark.parametrize(
    ("setting", "option", "waits"),
    [(True, None, True), (True, False, False), (True, True, True), (False, None, False), (False, True, True)],
)
def test_waiting_is_a_setting_that_a_push_overrides(
    setting: bool, option: bool | None, waits: bool, make_config: Any, transactions: Transactions, stored: Stored
) -> None:
    config = make_config(enqueue_on_commit=setting)
    config.defer = transactions
    transactions.open.add("default")

    Client(config).push({"class": "Foo", "args": [], **({} if option is None else {"on_commit": option})})

    assert (len(transactions.waiting), len(stored.queue())) == ((1, 0) if waits else (0, 1))


def test_a_push_is_sent_to_the_redis_it_was_made_for(
    config: Config, client: Client, transactions: Transactions, stored: Stored, make_config: Any
) -> None:
    transactions.open.add("default")
    elsewhere = make_config("redis://127.0.0.1:1/0")
    client.push({"class": "Foo", "args": []})

    with Client.via(elsewhere.redis):
        transactions.commit()

    assert len(stored.queue()) == 1


def test_a_push_to_a_client_of_the_users_is_sent_though_its_block_has_ended(
    client: Client, transactions: Transactions, stored: Stored, redis: redis_py.Redis
) -> None:
    transactions.open.add("default")
    with Client.via(redis):
        client.push({"class": "Foo", "args": []})

    transactions.commit()

    assert len(stored.queue()) == 1
