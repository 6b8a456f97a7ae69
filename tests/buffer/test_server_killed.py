"""The server is killed under load and comes back with its data: every push that returned is there."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from tests.buffer.conftest import Producer, wait_for
from tests.support.servers import RedisServer
from wurk_django.errors import RedisRefused

PRODUCERS = 4


@pytest.mark.crash
@pytest.mark.oracle("safety:R5")
def test_pushes_across_three_kills_of_the_server_all_arrive_and_only_those_under_way_twice(
    make_producer: Callable[..., Producer], capsys: pytest.CaptureFixture[str]
) -> None:
    with RedisServer(append_only=True) as server:
        producer = make_producer(server.url, reliable_push_buffer=100_000, reliable_push_drain_interval=0.05)
        told: list[str] = []
        refused: list[str] = []
        done = threading.Event()

        def produce() -> None:
            number = 0
            while not done.is_set():
                number += 1
                try:
                    told.append(producer.push(number))
                except RedisRefused as refusal:  # it reads its data: nobody was told that all is well
                    refused.append(refusal.code)

        threads = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            before = len(told)
            wait_for(lambda before=before: len(told) >= before + 200, what="the load")
            server.kill()
            before = len(told)
            wait_for(lambda before=before: len(told) >= before + 50, what="pushes during the outage")
            assert len(producer.buffer) > 0
            server.start()
            wait_for(lambda: len(producer.buffer) == 0, what="the delivery")
        done.set()
        for thread in threads:
            thread.join(20)
        wait_for(lambda: len(producer.buffer) == 0, what="the last delivery")

        with server.client() as client:
            found = Counter(json.loads(raw)["jid"] for raw in client.lrange("queue:default", 0, -1))
        twice = {jid: times for jid, times in found.items() if times > 1}
        with capsys.disabled():
            print(f"\n3 kills: {len(told)} pushes returned, {len(refused)} refused, {len(twice)} jobs twice")
        assert set(told) <= set(found)
        assert set(found) <= set(told)
        assert len(twice) <= 3 * (PRODUCERS + 1)  # what was under way at a kill: one a thread, and the deliverer's
        assert {*refused, *(getattr(error, "code", repr(error)) for error in producer.errors)} <= {"LOADING"}
