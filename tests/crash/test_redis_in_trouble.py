"""A worker whose Redis is in every kind of trouble: nothing is lost or repeated, and jobs flow again at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import trouble
from tests.crash.harness import Stage
from tests.crash.trouble import Begin
from tests.support.processes import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.errors import RedisRefused

FLOWING_S = 2.0  # until jobs run again once Redis is back
THREADS = 5
LINE_S = 10.0  # a thread says no more than one line in this time

pytestmark = pytest.mark.crash


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[RedisServer]:
    """A server of the test's own: it syncs every write before it answers."""
    with RedisServer(append_only=True) as server:
        yield server


@pytest.fixture
def stage(server: RedisServer, tmp_path: Path) -> Iterator[Stage]:
    with Proxy(server.port) as proxy, server.client() as client:
        stage = Stage(client, proxy, tmp_path)
        yield stage
        stage.close()


def pushed_at_once(stage: Stage) -> str:
    stage.redis.connection_pool.disconnect()
    return stage.push("Work")


@pytest.mark.oracle("safety:G15")
@pytest.mark.parametrize(
    ("begin", "lasts_s"),
    [
        pytest.param(trouble.stopped, 1.5, marks=pytest.mark.oracle("safety:R5")),
        pytest.param(trouble.killed, 0.2, marks=pytest.mark.oracle("safety:R5")),
        pytest.param(trouble.killed, 4.0, marks=pytest.mark.oracle("safety:R5")),
        pytest.param(trouble.emptied, 0.0, marks=pytest.mark.oracle("safety:R7")),
        pytest.param(trouble.frozen, 1.0, marks=pytest.mark.oracle("safety:R16")),
        pytest.param(trouble.frozen, 6.0, marks=pytest.mark.oracle("safety:R16")),
        pytest.param(trouble.loading, 1.0, marks=pytest.mark.oracle("safety:R8")),
        pytest.param(trouble.readonly, 2.0, marks=pytest.mark.oracle("safety:R9")),
        pytest.param(trouble.without_replicas, 2.0, marks=pytest.mark.oracle("safety:R10")),
        pytest.param(trouble.full, 2.0, marks=pytest.mark.oracle("safety:R11")),
        pytest.param(trouble.unable_to_save, 2.0, marks=pytest.mark.oracle("safety:R12")),
        pytest.param(trouble.busy, 4.0, marks=pytest.mark.oracle("safety:R13")),
        pytest.param(trouble.scripts_flushed, 2.0, marks=pytest.mark.oracle("safety:R14")),
        pytest.param(trouble.clients_killed, 2.0, marks=pytest.mark.oracle("safety:R15")),
        pytest.param(trouble.clients_unblocked, 2.0, marks=pytest.mark.oracle("safety:R15")),
        pytest.param(trouble.idle_clients_closed, 3.0, marks=pytest.mark.oracle("safety:R15")),
        pytest.param(trouble.out_of_clients, 2.0, marks=pytest.mark.oracle("safety:R15")),
        pytest.param(trouble.refused, 1.2, marks=pytest.mark.oracle("safety:R4")),
        pytest.param(trouble.flapping, 6.0, marks=pytest.mark.oracle("safety:R19")),
    ],
)
def test_jobs_flow_again_at_once(begin: Begin, lasts_s: float, server: RedisServer, stage: Stage) -> None:
    worker = stage.worker(concurrency=THREADS, HEARTBEAT_TTL=60)
    stage.wait_until_done([stage.push("Work")])
    running = stage.push("Hold", "gate")
    eventually(lambda: running in stage.ledger.jids("start"))

    end = begin(server, stage)
    time.sleep(lasts_s)
    stage.open_gate("gate")  # a job that ends while Redis is away is acknowledged later
    end()
    back_at = time.monotonic()
    jid = pushed_at_once(stage)

    eventually(lambda: jid in stage.ledger.jids("end"), FLOWING_S, lambda: f"a job after it:\n{worker.output}")
    print(f"{begin.__name__}: jobs flow {time.monotonic() - back_at:.2f} s after Redis is back")
    stage.wait_until_done([running, jid])
    assert set(stage.ledger.starts().values()) == {1}
    assert worker.code is None
    eventually(lambda: worker.identity(stage.redis), 3, "a heartbeat afterwards")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    stage.check_keys()


@pytest.mark.oracle("safety:R8", "safety:R13")
@pytest.mark.parametrize("begin", [trouble.stopped, trouble.busy, trouble.loading, trouble.readonly])
def test_a_worker_says_little_while_redis_does_not_serve(begin: Begin, server: RedisServer, stage: Stage) -> None:
    worker = stage.worker(concurrency=THREADS, HEARTBEAT_TTL=60)
    stage.wait_until_done([stage.push("Work")])
    before = len(worker.output.splitlines())
    stage.proxy.clear()

    end = begin(server, stage)
    time.sleep(4)
    said = worker.output.splitlines()[before:]
    end()

    assert said, "an outage is told"
    # Those that speak: the dispatcher's leader and its tender, heartbeat, scheduler, reaper, leader; each once.
    assert len(said) <= THREADS + 6, said
    assert not [command for command in stage.proxy.commands if command[:2] == (b"SCRIPT", b"KILL")]
    stage.wait_until_done([pushed_at_once(stage)])


@pytest.mark.oracle("safety:R9", "safety:R10", "safety:R11", "safety:R12")
@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (trouble.readonly, "READONLY"),
        (trouble.without_replicas, "NOREPLICAS"),
        (trouble.full, "OOM"),
        (trouble.unable_to_save, "MISCONF"),
    ],
)
def test_a_push_that_redis_refuses_raises_its_code_and_leaves_nothing(
    begin: Begin, code: str, server: RedisServer, stage: Stage
) -> None:
    end = begin(server, stage)

    with pytest.raises(RedisRefused) as refusal:
        stage.push("Work")

    assert refusal.value.code == code
    end()
    assert stage.places() == {}


@pytest.mark.oracle("safety:R9", "safety:R10", "safety:R12")
@pytest.mark.parametrize("begin", [trouble.readonly, trouble.without_replicas, trouble.unable_to_save])
def test_a_job_that_fails_while_its_retry_cannot_be_booked_stays_where_it_is(
    begin: Begin, server: RedisServer, stage: Stage
) -> None:
    worker = stage.worker(concurrency=1, HEARTBEAT_TTL=60)
    first = stage.push("Hold", "gate")
    eventually(lambda: first in stage.ledger.jids("start"))
    jid = stage.push("FailAt", "fail")
    stage.open_gate("gate")
    eventually(lambda: jid in stage.ledger.jids("start"))
    end = begin(server, stage)

    stage.open_gate("fail")
    eventually(lambda: jid in stage.ledger.jids("fail"))
    time.sleep(0.5)  # more than the booking takes

    assert stage.where(jid) == ["private"]
    end()
    stage.wait_until_done([first, jid])
    assert worker.code is None


@pytest.mark.oracle("safety:R4")
def test_a_worker_gets_on_between_resets_of_all_its_connections(stage: Stage) -> None:
    worker = stage.worker(concurrency=THREADS, HEARTBEAT_TTL=60)
    jids = stage.push_many("Work", [[2]] * 6000)
    eventually(lambda: stage.ledger.jids("end"))
    slowest = 0.0
    for _ in range(8):
        stage.proxy.reset_all()
        reset_at = time.monotonic()
        seen = len(stage.ledger.entries("end"))
        eventually(lambda seen=seen: len(stage.ledger.entries("end")) > seen + 2 * THREADS, 1.0, "progress")
        slowest = max(slowest, time.monotonic() - reset_at)
        time.sleep(0.3)

    print(f"at work again {slowest:.2f} s after a reset, at worst")
    stage.wait_until_done(jids, 40)
    assert set(stage.ledger.starts().values()) == {1}
    assert worker.code is None
