"""Who delivers what was kept: the thread of the buffer, the end of the process, a parent that has forked."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.buffer.conftest import Outage, Producer, wait_for
from tests.client.conftest import Stored
from tests.support.faults import Answer, Before, named
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django import config as configuration
from wurk_django import jobs, registry
from wurk_django.buffer import push_buffer
from wurk_django.connection import RedisOptions

ROOT = Path(__file__).parents[2]
THREAD = "wurk-push-buffer"


def alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


@pytest.fixture
def restless(proxy: Proxy, make_producer: Callable[..., Producer]) -> Producer:
    """A producer whose buffer delivers by itself, soon."""
    return make_producer(proxy.url, reliable_push_drain_interval=0.02)


def test_a_thread_delivers_when_redis_is_back_and_ends_then(restless: Producer, outage: Outage, stored: Stored) -> None:
    assert alive() == []
    outage.begin()
    for number in range(3):
        restless.push(number)
    assert len(alive()) == 1
    outage.end()

    wait_for(lambda: len(stored.queue()) == 3, what="the delivery")

    assert [job["args"] for job in stored.queue()] == [[0], [1], [2]]
    wait_for(lambda: not alive(), what="the end of the thread")
    assert restless.errors == []

    outage.begin()
    restless.push(3)
    outage.end()
    wait_for(lambda: len(stored.queue()) == 4, what="the second delivery")
    wait_for(lambda: not alive(), what="the end of the thread")


def test_a_job_is_kept_though_no_thread_can_be_had(
    restless: Producer, outage: Outage, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    outage.begin()
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        restless.push(0)
    assert restless.kept() == [0]

    restless.push(1)  # the next one tries again
    outage.end()
    wait_for(lambda: len(stored.queue()) == 2, what="the delivery")


def test_the_thread_delivers_to_every_redis_before_it_tells_of_a_refusal(
    restless: Producer, outage: Outage, proxy: Proxy, redis_url: str, stored: Stored
) -> None:
    outage.begin()
    restless.push(0)
    restless.buffer._entries.append(push_buffer.Entry(prepared(restless, 1), RedisOptions(redis_url)))
    proxy.on(named("SADD", "LPUSH"), Answer("OOM no"), times=None)
    outage.end()

    wait_for(lambda: restless.errors, what="the report")

    assert [job["args"] for job in stored.queue()] == [[1]]
    assert restless.kept() == [0]
    proxy.clear()
    wait_for(lambda: len(stored.queue()) == 2, what="the delivery")


def prepared(producer: Producer, number: int) -> dict[str, Any]:
    payload = producer.client.prepare({"class": "Foo", "args": [number]})
    assert payload is not None
    return payload


def test_while_one_thread_delivers_another_pushes_past_it(
    producer: Producer, outage: Outage, proxy: Proxy, stored: Stored
) -> None:
    outage.begin()
    producer.push(0)
    outage.end()
    reached, carry_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        carry_on.wait(0.4)

    proxy.on(named("LPUSH"), Before(hold))
    deliverer = threading.Thread(target=producer.buffer.drain_all)
    deliverer.start()
    assert reached.wait(5)

    producer.push(1)

    assert [job["args"] for job in stored.queue()] == [[1]]
    carry_on.set()
    deliverer.join(5)
    assert [job["args"] for job in stored.queue()] == [[1], [0]]


def test_a_job_that_is_being_delivered_is_not_dropped(
    make_producer: Callable[..., Producer], outage: Outage, proxy: Proxy, stored: Stored
) -> None:
    producer = make_producer(proxy.url, reliable_push_buffer=2, reliable_push_overflow="drop_oldest")
    outage.begin()
    producer.push(0)
    outage.end()
    reached, carry_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        carry_on.wait(0.4)

    proxy.on(named("LPUSH"), Before(hold))
    deliverer = threading.Thread(target=producer.buffer.drain_all)
    deliverer.start()
    assert reached.wait(5)

    proxy.refuse = True
    producer.bulk(1, 2, 3)
    carry_on.set()
    deliverer.join(5)

    assert [job["args"] for job in stored.queue()] == [[0], [3]]
    assert producer.counted("jobs.dropped.push") == 2


def test_many_threads_and_an_outage_lose_and_double_nothing(
    make_producer: Callable[..., Producer], proxy: Proxy, outage: Outage, stored: Stored
) -> None:
    """The connections are cut between commands only, so there is no answer that could be lost."""
    producer = make_producer(proxy.url, reliable_push_drain_interval=0.01)
    told: list[str] = []

    def produce(first: int) -> None:
        for number in range(first, first + 50):
            told.append(producer.push(number))

    threads = [threading.Thread(target=produce, args=(first,)) for first in range(0, 200, 50)]
    proxy.refuse = True
    for thread in threads:
        thread.start()
    wait_for(lambda: len(producer.buffer) > 5, what="the outage")
    outage.end()
    for thread in threads:
        thread.join(20)
    wait_for(lambda: len(producer.buffer) == 0, what="the delivery")

    assert sorted(job["jid"] for job in stored.queue()) == sorted(told)


def test_the_a_twins_are_kept_too(
    producer: Producer, outage: Outage, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_jobs", {})
    monkeypatch.setattr(configuration, "_default", producer.config)

    @jobs.job(name="buffer.twin")
    def twin(number: int) -> None: ...

    async def push_two() -> list[Any]:
        return [await twin.aperform_async(1), *await twin.aperform_bulk([[2]])]

    outage.begin()
    jids = asyncio.run(push_two())
    outage.end()

    assert producer.kept() == [1, 2]
    producer.buffer.drain_all()
    assert [job["jid"] for job in stored.queue()] == jids


# --- the end of a process ---------------------------------------------------------------------------------------------


def test_the_end_of_the_process_delivers_the_rest(producer: Producer, outage: Outage, stored: Stored) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()

    producer.buffer.close()

    assert [job["args"] for job in stored.queue()] == [[0], [1], [2]]
    assert len(producer.buffer) == 0


@pytest.mark.oracle("reliability:RP9")
def test_what_cannot_be_delivered_at_the_end_is_named_as_lost_within_the_deadline(
    producer: Producer, outage: Outage, caplog: pytest.LogCaptureFixture, pauses: list[float]
) -> None:
    outage.begin()
    jids = [producer.push(number) for number in range(3)]
    pauses.clear()

    started = time.monotonic()
    with caplog.at_level(logging.ERROR, "wurk"):
        producer.buffer.close()

    assert time.monotonic() - started < push_buffer.LAST_DRAIN_S + 1
    assert pauses == []  # one attempt
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"3 jobs are lost: {' '.join(jids)}" in record.getMessage()


def test_no_further_job_is_begun_after_the_deadline(
    producer: Producer, outage: Outage, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage.begin()
    for number in range(3):
        producer.push(number)
    outage.end()
    ticks = iter([0.0, 0.0, 1.0, 9.0, 9.0])
    monkeypatch.setattr(push_buffer, "monotonic", lambda: next(ticks, 9.0))

    producer.buffer.close()

    assert len(stored.queue()) == 1


def run(program: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, url], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


PRELUDE = """
import sys
import time
import types
from dataclasses import replace
from wurk_django import buffer, connection
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
connection.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: time.sleep(0.01))
config = Config(redis=RedisOptions(sys.argv[1], connect_timeout_s=0.3))
config.options = replace(config.options, reliable_push_drain_interval=30)
kept = buffer.install(config)
for number in range(10):
    payload = Client(config).prepare({"class": "Foo", "args": [number]})
    kept._entries.append(buffer.push_buffer.Entry(payload, config.redis_options))
"""


def test_a_program_that_ends_delivers_what_it_kept(redis_url: str, stored: Stored) -> None:
    program = run("", redis_url)
    _, errors = program.communicate(timeout=30)
    assert (program.returncode, errors) == (0, "")
    assert [job["args"][0] for job in stored.queue()] == list(range(10))


@pytest.mark.oracle("reliability:RP9")
def test_a_program_that_is_killed_loses_what_it_kept(redis_url: str, stored: Stored) -> None:
    program = run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", redis_url)
    program.communicate(timeout=30)
    assert stored.keys() == []


@pytest.mark.oracle("reliability:RP7")
def test_a_fork_leaves_the_child_an_empty_buffer_and_the_parent_delivers_once(
    redis_url: str, stored: Stored, redis: redis_py.Redis
) -> None:
    program = run(
        """
import json, os, threading
held = kept._mutex
held.acquire()  # another thread of the parent may hold any lock at the fork
kept._draining.acquire()
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    found = {"kept": len(kept), "free": not kept._mutex.locked() and not kept._draining.locked()}
    Client(config).push({"class": "Foo", "args": ["child"]})
    os.write(writing, json.dumps(found).encode())
    sys.exit(0)  # with its own end of process
os.waitpid(pid, 0)
held.release()
kept._draining.release()
print(os.read(reading, 1000).decode(), len(kept))
Client(config).push({"class": "Foo", "args": [10]})
print(len(kept))
""",
        redis_url,
    )
    output, errors = program.communicate(timeout=30)
    assert errors == ""
    told, after = output.splitlines()
    assert json.loads(told.rpartition(" ")[0]) == {"kept": 0, "free": True}
    assert told.endswith(" 10")
    assert after == "0"
    assert [job["args"][0] for job in stored.queue()] == ["child", *range(11)]


def test_a_child_that_meets_an_outage_gets_a_thread_of_its_own(tmp_path: Path) -> None:
    with RedisServer() as server:
        program = run(
            """
import os, threading
config.options = replace(config.options, reliable_push_drain_interval=0.05)
kept._entries.clear()
print("ready", flush=True)
sys.stdin.readline()  # Redis is away now
Client(config).push({"class": "Foo", "args": ["parent"]})
pid = os.fork()
if pid == 0:
    Client(config).push({"class": "Foo", "args": ["child"]})
    print("child", [thread.name for thread in threading.enumerate()].count("wurk-push-buffer"), flush=True)
print("kept", flush=True)
while len(kept):
    time.sleep(0.001)
os._exit(0) if pid == 0 else os.waitpid(pid, 0)
""",
            server.url,
        )
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "ready\n"
        server.kill()
        program.stdin.write("\n")
        program.stdin.flush()
        lines = [program.stdout.readline() for _ in range(3)]
        server.start()
        program.wait(30)
        assert sorted(lines) == ["child 1\n", "kept\n", "kept\n"]
        with server.client() as client:
            found = [json.loads(raw)["args"][0] for raw in client.lrange("queue:default", 0, -1)]
        assert sorted(found) == ["child", "parent"]
        program.stdin.close()
        program.stdout.close()
        assert program.stderr is not None
        program.stderr.close()


def test_a_worker_that_ends_delivers_what_its_jobs_pushed_by_another_configuration(
    producer: Producer, make_producer: Callable[..., Producer], outage: Outage, stored: Stored
) -> None:
    worker = make_producer()
    outage.begin()
    producer.push(0)
    outage.end()
    worker.config.hooks.fire("exit", worker.config.report)
    assert len(stored.queue()) == 1
