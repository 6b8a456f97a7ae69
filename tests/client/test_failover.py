"""A real failover under load: what producers were told is pushed, and what the new primary has of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connection.sentinel import Sentinel
from tests.support.servers import RedisServer
from wurk_django.client import Client
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.errors import NotReplicated, RedisRefused, RedisUnavailable

PRODUCERS = 4
#: Pushes before the failover; the goal of safety G18 is 100,000.
PUSHES = int(os.environ.get("WURK_FAILOVER_PUSHES", "500"))
DEADLINE_S = 30.0 + PUSHES / 500


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {DEADLINE_S} s"
        time.sleep(0.01)


class Pair:
    """A primary, its replica, and a sentinel that promotes the replica when the primary is gone."""

    def __init__(self, directory: Path) -> None:
        self.primary = RedisServer(config={"repl-diskless-sync-delay": "0"}).start()
        self.replica = RedisServer(config={"replicaof": f"127.0.0.1 {self.primary.port}"}).start()
        with self.replica.client() as client:
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", "the replication")
        self.sentinel = Sentinel({"main": self.primary.port}, directory, down_after_ms=500)
        # It has to hear of the replica before it can promote it.
        wait_for(lambda: self.sentinel.execute("SENTINEL", "REPLICAS", "main"), "the sentinel's knowledge")

    def close(self) -> None:
        self.sentinel.close()
        self.replica.close()
        self.primary.close()

    def leave_behind(self) -> None:
        """Let the replica miss what the primary does from now on."""
        self.replica.pause()
        with self.primary.client() as client:
            client.client_kill_filter(_type="replica")

    def fail_over(self) -> None:
        """Kill the primary; returns when the replica has its place."""
        self.primary.kill()
        self.replica.resume()
        wait_for(lambda: self._named() == self.replica.port, "the failover")
        with self.replica.client() as client:
            wait_for(lambda: client.info("replication")["role"] == "master", "the promotion")

    def _named(self) -> int:
        found = self.sentinel.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
        assert isinstance(found, list)
        return int(found[1])


class Producers:
    """Threads that push until they are stopped, across every error. `told` are the jids of pushes that returned."""

    def __init__(self, config: Config, replicas: int) -> None:
        self.told: list[str] = []
        self.unsure = 0
        self._client = Client(config)
        self._replicas = replicas
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._produce, daemon=True) for _ in range(PRODUCERS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _produce(self) -> None:
        while not self._done.is_set():
            try:
                jid = self._client.push({"class": "Foo", "args": [], "wait_replicas": self._replicas})
            except (RedisUnavailable, RedisRefused, NotReplicated):
                self.unsure += 1
            else:
                assert jid is not None
                self.told.append(jid)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


@pytest.fixture
def config(pair: Pair) -> Iterator[Config]:
    sentinels = (("127.0.0.1", pair.sentinel.port),)
    config = Config(redis=RedisOptions("redis://", sentinels, "main", read_timeout_s=1.0))
    config.options = Options(push_wait_timeout=0.4)
    yield config
    config.reset_redis_pools()


@pytest.mark.crash
@pytest.mark.oracle("safety:R20", "safety:G18")
@pytest.mark.parametrize("replicas", [1, 0], ids=["WAIT 1", "WAIT off"])
def test_a_failover_to_a_stale_replica_loses_no_push_that_waited_for_it(
    replicas: int, pair: Pair, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    producers = Producers(config, replicas)
    wait_for(lambda: len(producers.told) >= PUSHES, "the load")
    pair.leave_behind()
    attempted = len(producers.told) + producers.unsure
    behind = 20 if replicas else 500
    wait_for(lambda: len(producers.told) + producers.unsure >= attempted + behind, "pushes that are not replicated")

    pair.fail_over()

    unreplicated = len(producers.told)
    if not replicas:  # the new primary has no replica of its own: with WAIT nothing is confirmed any more
        wait_for(lambda: len(producers.told) >= unreplicated + 100, "pushes to the new primary")
    producers.stop()
    with pair.replica.client() as client:
        found = [json.loads(raw)["jid"] for raw in client.lrange("queue:default", 0, -1)]
    lost = set(producers.told) - set(found)
    with capsys.disabled():
        print(f"\nwait_replicas={replicas}: {len(producers.told)} pushes returned, {producers.unsure} raised,"
              f" {len(lost)} of those that returned are lost")  # fmt: skip
    assert len(found) == len(set(found))
    if replicas:
        assert lost == set()
    else:
        assert 0 < len(lost) <= unreplicated
