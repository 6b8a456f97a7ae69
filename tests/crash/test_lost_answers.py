"""A living worker whose requests or answers get lost: each job runs once, and nothing waits for a restart."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.crash.harness import RECOVERY_S, Stage, beat, book_retry, bury, is_ack, is_claim, promote, requeue
from tests.support.faults import LoseReply, LoseRequest, named
from tests.support.processes import eventually
from tests.support.proxy import Action, Predicate

pytestmark = pytest.mark.crash

FAULTS = [LoseRequest(), LoseReply(), LoseRequest(hang=True), LoseReply(hang=True)]


def name_of(fault: Action) -> str:
    lost = "request" if isinstance(fault, LoseRequest) else "answer"
    return f"{lost}-{'silence' if fault.hang else 'cut'}"  # type: ignore[attr-defined]


def is_idle(stage: Stage) -> bool:
    """The worker waits on both of its queues."""
    return bool(stage.redis.info("clients")["blocked_clients"] == 2)


@pytest.mark.oracle("safety:R1", "safety:R2", "reliability:F9", "reliability:A5")
@pytest.mark.parametrize("fault", [LoseRequest(), LoseReply(), LoseReply(hang=True)], ids=name_of)
def test_a_worker_outlives_the_loss_of_any_one_message_and_runs_each_job_once(fault: Action, stage: Stage) -> None:
    points: dict[str, tuple[Predicate, Callable[[], str]]] = {
        "claim of a pass": (is_claim, lambda: stage.push("Work")),
        "claim of a wait": (named("BLMOVE"), lambda: stage.push("Work")),
        "acknowledgement": (is_ack, lambda: stage.push("Work")),
        "retry": (book_retry, lambda: stage.push("Flaky")),
        "death": (bury, lambda: stage.push("Doomed", retry=0)),
        "promotion": (promote, lambda: stage.push("Work", at=time.time() + 0.5)),
        "end of a wait": (lambda command: command[:2] == (b"CLIENT", b"UNBLOCK"), lambda: stage.push("Work")),
        "heartbeat": (beat, lambda: stage.push("Work")),
    }
    worker = stage.worker(concurrency=1, queues=["default", "other"])
    worker.wait_until_ready(stage.redis)

    for point, (predicate, push) in points.items():
        eventually(lambda: is_idle(stage), 10, f"the wait after the fault before that at the {point}")
        lost = stage.proxy.on(predicate, fault)
        jid = push()
        pushed_at = time.monotonic()
        eventually(lost.fired.is_set, 10, f"the fault at the {point}")
        if point == "retry":
            retry_now(stage)
        stage.wait_until_done([jid], RECOVERY_S - (time.monotonic() - pushed_at))

    assert worker.code is None
    assert set(stage.ledger.starts().values()) == {1}
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def retry_now(stage: Stage) -> None:
    """What the button does to the only member of the retry set, once it is there."""
    member = eventually(lambda: stage.redis.zrange("retry", 0, -1))[0]
    stage.redis.zadd("retry", {member: time.time()}, xx=True)


@pytest.mark.oracle("safety:K2", "safety:R2", "reliability:F9")
@pytest.mark.parametrize("fault", [LoseReply(), LoseReply(hang=True)], ids=name_of)
def test_an_answer_that_was_lost_with_an_ack_and_a_claim_in_it_costs_neither_job(fault: Action, stage: Stage) -> None:
    worker = stage.worker(concurrency=1)
    first = stage.push("Hold", "gate")
    eventually(lambda: first in stage.ledger.jids("start"))
    lost = stage.proxy.on(lambda command: is_ack(command) and is_claim(command), fault)
    second = stage.push("Work")

    stage.open_gate("gate")
    lost.wait()

    stage.wait_until_done([first, second], 5 + 2.5)  # a silent line is given up after 2.5 s
    assert set(stage.ledger.starts().values()) == {1}
    assert worker.code is None


@pytest.mark.oracle("safety:R2")
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_requeue_that_was_cut_off_at_a_stop_is_repeated_and_leaves_one_copy(fault: Action, stage: Stage) -> None:
    worker = stage.worker(TIMEOUT=0.2)
    jid = stage.push("Hold", "never")
    eventually(lambda: jid in stage.ledger.jids("start"))
    lost = stage.proxy.on(requeue, fault)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    lost.wait(0)
    assert stage.where(jid) == ["queue:default"]
