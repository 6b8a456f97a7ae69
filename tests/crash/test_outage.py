"""Redis goes away under a running worker, in several ways, and comes back: nothing acknowledged is lost, jobs flow."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Stage
from tests.support.processes import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.errors import RedisRefused, RedisUnavailable

FLOWING_S = 3.0  # until jobs run again once Redis is back

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


class Load(threading.Thread):
    """Pushes one job after the other, through the proxy; remembers which pushes were acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.config = Config(redis=RedisOptions(url))
        self.acknowledged: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        client = Client(self.config)
        while not self.done.wait(0.002):
            try:
                self.acknowledged.append(client.push({"class": "Work", "args": [2]}) or "")
            except (RedisUnavailable, RedisRefused):
                continue

    def end(self) -> list[str]:
        self.done.set()
        self.join(20)
        assert not self.is_alive()
        self.config.reset_redis_pools()
        return self.acknowledged


@pytest.mark.oracle("safety:R5")
def test_killing_redis_under_load_loses_nothing_that_was_acknowledged(server: RedisServer, stage: Stage) -> None:
    worker = stage.worker()
    load = Load(stage.proxy.url)
    load.start()
    for _ in range(5):
        seen = len(load.acknowledged)
        eventually(lambda seen=seen: len(load.acknowledged) >= seen + 50, 20)
        server.restart(kill=True)

    jids = load.end()

    stage.wait_until_done(jids, 20)
    assert worker.code is None
    # Five servers died; each could hold one unacknowledged job a thread, finished or not, and its ack.
    repeats = sum(count - 1 for count in stage.ledger.starts().values())
    assert repeats <= 5 * 5
    assert len(stage.ledger.jids("end")) <= len(jids) + 5, "a push that failed may have arrived, once"
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def stop_server(server: RedisServer, _stage: Stage) -> Callable[[], object]:
    server.stop()
    return server.start


def kill_server(server: RedisServer, _stage: Stage) -> Callable[[], object]:
    server.kill()
    return server.start


def freeze_server(server: RedisServer, _stage: Stage) -> Callable[[], object]:
    server.pause()
    return server.resume


def refuse(_server: RedisServer, stage: Stage) -> Callable[[], object]:
    stage.proxy.refuse = True
    stage.proxy.reset_all()

    def heal() -> None:
        stage.proxy.refuse = False

    return heal


def swallow(_server: RedisServer, stage: Stage) -> Callable[[], object]:
    stage.proxy.black_hole()
    return lambda: stage.proxy.heal(deliver=False)


@pytest.mark.oracle("safety:G15", "reports:P02")
@pytest.mark.parametrize("outage_s", [0.5, 3.0])
@pytest.mark.parametrize("begin", [stop_server, kill_server, freeze_server, refuse, swallow])
def test_jobs_flow_again_soon_after_redis_is_back(
    begin: Callable[[RedisServer, Stage], Callable[[], object]], outage_s: float, server: RedisServer, stage: Stage
) -> None:
    worker = stage.worker()
    before = stage.push("Work")
    stage.wait_until_done([before])
    eventually(lambda: stage.redis.info("clients")["blocked_clients"] == 1)

    end = begin(server, stage)
    time.sleep(outage_s)  # how long it is away
    end()
    back_at = time.monotonic()
    stage.redis.connection_pool.disconnect()
    at_once, later = stage.push("Work"), stage.push("Work", at=time.time() + 0.2)

    eventually(lambda: at_once in stage.ledger.jids("end"), FLOWING_S - (time.monotonic() - back_at), "the job")
    stage.wait_until_done([later])  # the scheduler waits for 5 s when it cannot count processes
    assert set(stage.ledger.starts().values()) == {1}
    assert worker.code is None
    eventually(lambda: worker.identity(stage.redis), 3, "a heartbeat after the outage")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.oracle("safety:R4")
def test_resetting_all_connections_again_and_again_stops_no_thread(stage: Stage) -> None:
    worker = stage.worker()
    jids = stage.push_many("Work", [[5]] * 2000)
    for number in range(6):
        seen = len(stage.ledger.entries("end"))
        eventually(lambda seen=seen: len(stage.ledger.entries("end")) > seen + 50, 3, f"progress after {number} resets")
        stage.proxy.reset_all()

    stage.wait_until_done(jids)

    repeats = sum(count - 1 for count in stage.ledger.starts().values())
    assert repeats == 0, "nobody died, so nothing needed to run again"
    assert worker.code is None


def test_a_worker_that_is_told_to_stop_while_redis_is_away_ends_and_leaves_its_jobs_to_the_next(
    server: RedisServer, stage: Stage
) -> None:
    worker = stage.worker(TIMEOUT=0.2)
    jid = stage.push("Long")
    eventually(lambda: jid in stage.ledger.jids("start"))
    server.kill()

    worker.send(signal.SIGTERM)

    assert worker.wait(30) == 0
    server.start()
    stage.redis.connection_pool.disconnect()
    assert stage.where(jid) == ["private"]
    stage.worker()
    stage.wait_until_done([jid])
