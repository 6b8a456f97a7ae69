"""A full buffer: drop the oldest jobs, or tell the caller which ones had no room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.buffer.conftest import Outage, Producer
from tests.support.proxy import Proxy
from wurk_django.errors import PushBufferFull, RedisUnavailable


@pytest.mark.oracle("reliability:RP5")
def test_drop_oldest_keeps_the_newest_and_says_so_once_a_burst(
    proxy: Proxy, make_producer: Callable[..., Producer], outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer(proxy.url, reliable_push_buffer=2, reliable_push_overflow="drop_oldest")
    outage.begin()

    with caplog.at_level(logging.ERROR, "wurk"):
        for number in range(4):
            producer.push(number)

        assert producer.kept() == [2, 3]
        assert producer.counted("jobs.dropped.push") == 2
        assert len(caplog.records) == 1

        outage.end()
        producer.push(4)  # a delivery ends the burst
        outage.begin()
        producer.bulk(5, 6, 7)
        assert producer.kept() == [6, 7]
        assert len(caplog.records) == 2


@pytest.mark.oracle("reliability:RP6")
def test_when_nothing_may_be_dropped_the_error_carries_what_had_no_room(
    proxy: Proxy, make_producer: Callable[..., Producer], outage: Outage
) -> None:
    producer = make_producer(proxy.url, reliable_push_buffer=2)
    outage.begin()

    with pytest.raises(PushBufferFull, match="no room for 3 jobs") as full:
        producer.bulk(0, 1, 2, 3, 4)

    assert producer.kept() == [0, 1]
    assert [payload["args"][0] for payload in full.value.payloads] == [2, 3, 4]
    assert isinstance(full.value.__cause__, RedisUnavailable)
    with pytest.raises(PushBufferFull):
        producer.push(5)
    assert producer.kept() == [0, 1]
    assert producer.counted("jobs.dropped.push") == 0


def test_a_full_buffer_names_the_tied_jobs_too(
    proxy: Proxy, make_producer: Callable[..., Producer], outage: Outage
) -> None:
    class Tie:
        def call(self, job_class: Any, payload: dict[str, Any], queue: str, redis: Any, call_next: Any) -> Any:
            if payload["args"] == [0]:
                payload["bid"] = "b"
            return call_next()

    producer = make_producer(proxy.url, reliable_push_buffer=1)
    producer.config.client_middleware.add(Tie)
    outage.begin()

    with pytest.raises(PushBufferFull) as full:
        producer.bulk(0, 1, 2)

    assert [payload["args"][0] for payload in full.value.payloads] == [2, 0]
