"""What a worker tells the fleet, and the signals that the fleet sends it."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import Answer, Delay, LoseReply, LoseRequest, named, script
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from tests.worker.rig import Recorder, Rig, enqueue, payload, wait_for
from wurk_django.clock import monotonic
from wurk_django.config import Config
from wurk_django.connection import Redis, RedisOptions
from wurk_django.storage import processes, stats
from wurk_django.storage.queues import Lane
from wurk_django.version import VERSION
from wurk_django.worker import identity
from wurk_django.worker.busy import Busy, Tally
from wurk_django.worker.heartbeat import Heartbeat
from wurk_django.worker.work import Work

ME = identity.identity()
beating = script(processes._heartbeat.sha.decode())


class Patient:
    """A heartbeat that a test lets beat by hand."""

    def __init__(self, config: Config, *, embedded: bool = False) -> None:
        config.freeze()
        self.busy, self.tally = Busy(), Tally()
        self.signals: list[str] = []
        self.events: list[str] = []
        for event in ("heartbeat", "beat"):
            config.hooks.on(event, lambda event=event: self.events.append(event))
        self.heart = Heartbeat(config, self.busy, self.tally, self.signals.append, embedded=embedded)
        self.beat = self.heart.beat


@pytest.fixture
def patient(rig: Rig) -> Patient:
    return Patient(rig.config(["high,3", "low"], 5, heartbeat_ttl=60, labels=("b", "a"), tag="shop"))


@pytest.mark.oracle("core:H1")
def test_the_first_beat_announces_the_process_and_every_beat_renews_it(redis: redis_py.Redis, patient: Patient) -> None:
    patient.beat()
    patient.beat()

    assert patient.events == ["heartbeat", "beat", "beat"]
    assert redis.smembers("processes") == {ME.encode()}
    assert 50 < redis.ttl(ME) <= 60
    fields = redis.hgetall(ME)
    assert set(fields) == {b"info", b"concurrency", b"busy", b"beat", b"rtt_us", b"quiet", b"rss"}
    assert (fields[b"concurrency"], fields[b"busy"], fields[b"quiet"]) == (b"5", b"0", b"false")
    assert abs(float(fields[b"beat"]) - time.time()) < 2
    assert 0 < int(fields[b"rtt_us"]) < 1_000_000
    assert int(fields[b"rss"]) > 1000
    assert redis.exists(f"{ME}:work") == 0, "absent while idle"


@pytest.mark.oracle("core:D17", "core:D6")
def test_the_description_of_a_process_has_what_every_sidekiq_reads(redis: redis_py.Redis, patient: Patient) -> None:
    patient.beat()

    info = json.loads(redis.hget(ME, "info"))
    assert abs(info.pop("started_at") - time.time()) < 60
    assert info == {
        "hostname": identity.host(),
        "pid": os.getpid(),
        "tag": "shop",
        "concurrency": 5,
        "capsules": {"default": {"concurrency": 5, "mode": "weighted", "weights": {"high": 3, "low": 0}}},
        "queues": ["high", "low"],
        "weights": [{"high": 3, "low": 0}],
        "labels": ["a", "b"],
        "identity": ME,
        "version": VERSION,
        "embedded": False,
    }


@pytest.mark.oracle("core:D19", "core:H2")
def test_a_process_that_was_forgotten_announces_itself_again(redis: redis_py.Redis, patient: Patient) -> None:
    patient.beat()
    redis.delete(ME, "processes")
    patient.beat()

    assert patient.events == ["heartbeat", "beat", "heartbeat", "beat"]
    assert redis.smembers("processes") == {ME.encode()}


def test_the_identity_is_host_pid_and_nonce() -> None:
    assert re.fullmatch(rf".+:{os.getpid()}:[0-9a-f]{{12}}", ME)


def test_a_dyno_names_the_host_and_pipes_never_get_into_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNO", "web|1")
    assert identity.host() == "web-1"
    assert identity.private_list("q", 0).count("|") == 4


def test_running_jobs_are_told_with_their_bytes(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    gate = jobs.gated_job("slow")
    launcher = rig.launcher(rig.config(["mail"], 2))
    raw = payload("slow", "é", jid="one")
    enqueue(redis, "mail", raw)
    wait_for(lambda: jobs.calls)
    launcher.heartbeat.beat()

    [(thread, row)] = redis.hgetall(f"{ME}:work").items()
    work = json.loads(row)
    assert thread
    assert work["queue"] == "mail"
    assert work["payload"] == raw.decode()
    assert type(work["run_at"]) is int
    assert abs(work["run_at"] - time.time()) < 5
    assert redis.hget(ME, "busy") == b"1"
    assert 0 < redis.ttl(f"{ME}:work") <= 60

    gate.set()
    wait_for(lambda: launcher.idle)
    launcher.heartbeat.beat()
    assert redis.exists(f"{ME}:work") == 0


@pytest.mark.oracle("core:H3")
def test_members_without_a_heartbeat_are_pruned_once_a_minute(redis: redis_py.Redis, redis_url: str) -> None:
    client = Redis(RedisOptions(redis_url))
    redis.sadd("processes", "alive:1:a", "gone:2:b")
    redis.hset("alive:1:a", "info", "{}")

    assert processes.prune(client) == 1
    assert redis.smembers("processes") == {b"alive:1:a"}
    redis.sadd("processes", "gone:3:c")
    assert processes.prune(client) == 0, "not again within the minute"
    assert 0 < redis.ttl("process_cleanup") <= 60
    client.close()


@pytest.mark.oracle("core:H4", "core:D16")
def test_signals_are_acted_on_in_the_order_in_which_they_were_sent(
    redis: redis_py.Redis, rig: Rig, patient: Patient
) -> None:
    client = Redis(RedisOptions(rig.url))
    for signal in ("TSTP", "TERM", "TTIN"):
        processes.send_signal(client, ME, signal)
    client.close()
    assert redis.lrange(f"{ME}-signals", 0, -1) == [b"TTIN", b"TERM", b"TSTP"]
    assert 0 < redis.ttl(f"{ME}-signals") <= 60

    patient.beat()

    assert patient.signals == ["TSTP", "TERM", "TTIN"]
    assert redis.exists(f"{ME}-signals") == 0


def test_signals_that_nobody_knows_are_logged_and_ignored(
    redis: redis_py.Redis, patient: Patient, caplog: pytest.LogCaptureFixture
) -> None:
    redis.lpush(f"{ME}-signals", "KILL", b"\xff\n", "TSTP")

    patient.beat()

    assert patient.signals == ["TSTP"]
    assert sum("unknown signal" in record.getMessage() for record in caplog.records) == 2


def test_an_embedded_worker_takes_its_signals_and_leaves_the_deciding_to_its_host(
    redis: redis_py.Redis, rig: Rig
) -> None:
    patient = Patient(rig.config(), embedded=True)
    redis.lpush(f"{ME}-signals", "TERM")

    patient.beat()

    assert patient.signals == []
    assert redis.exists(f"{ME}-signals") == 0
    assert json.loads(redis.hget(ME, "info"))["embedded"] is True


@pytest.mark.oracle("reliability:C6")
def test_a_beat_whose_answer_is_lost_is_not_sent_twice_and_the_next_signal_arrives(
    redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    patient = Patient(rig.config(url=proxy.url))
    patient.beat()
    proxy.clear()
    redis.lpush(f"{ME}-signals", "TSTP")
    lost = proxy.on(beating, LoseReply())

    patient.beat()
    assert lost.hits == 1
    assert sum(beating(command) for command in list(proxy.commands)) == 1, "sent once"
    assert any("heartbeat" in message for message in rig.messages())

    redis.lpush(f"{ME}-signals", "TERM")
    patient.beat()
    assert patient.signals == ["TERM"]


@pytest.mark.oracle("safety:R11")
def test_a_worker_stays_alive_while_redis_is_full_and_writes_its_counts_afterwards(
    full_server: redis_py.Redis, own_server: RedisServer, rig: Rig
) -> None:
    patient = Patient(rig.config(url=own_server.url))
    cell = patient.tally.cell()
    full_server.config_set("maxmemory", 1)
    cell.processed += 3
    cell.failed += 1
    patient.busy.enter("t", Work(Lane("q", "queue:q", "p"), payload(), monotonic()))

    patient.beat()

    assert full_server.hget(ME, "busy") == b"1"
    assert full_server.exists(f"{ME}:work", "processes") == 2
    assert full_server.exists("stat:processed") == 0

    full_server.config_set("maxmemory", 0)
    patient.beat()
    assert (full_server.get("stat:processed"), full_server.get("stat:failed")) == (b"3", b"1")


@pytest.mark.oracle("core:D15")
@pytest.mark.parametrize("fault", [Answer("LOADING busy"), LoseRequest()], ids=["refused", "cut"])
def test_counts_that_redis_did_not_take_are_written_with_the_next_beat(
    fault: Any, redis: redis_py.Redis, rig: Rig, proxy: Proxy
) -> None:
    patient = Patient(rig.config(url=proxy.url))
    cells = [patient.tally.cell(), patient.tally.cell()]
    for cell in cells:
        cell.processed += 2
    cells[0].failed += 1
    proxy.on(named("INCRBY"), fault, times=4 if isinstance(fault, Answer) else 1)

    patient.beat()
    assert redis.exists("stat:processed") == 0
    cells[1].processed += 1
    patient.beat()

    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert (redis.get("stat:processed"), redis.get("stat:failed")) == (b"5", b"1")
    assert redis.get(f"stat:processed:{today}") == b"5"
    assert 157_679_000 < redis.ttl(f"stat:failed:{today}") <= 157_680_000


def test_without_new_counts_nothing_is_written(redis: redis_py.Redis, patient: Patient) -> None:
    patient.beat()

    assert redis.keys("stat:*") == []


def test_counts_of_many_threads_add_up(redis: redis_py.Redis, rig: Rig) -> None:
    tally = Tally()
    cells = [tally.cell() for _ in range(5)]
    for number, cell in enumerate(cells):
        cell.processed += number
    assert tally.take() == (10, 0)
    assert tally.take() == (0, 0)
    tally.put_back(10, 0)
    cells[0].failed += 1
    assert tally.take() == (10, 1)
    client = Redis(RedisOptions(rig.url))
    stats.add(client, 0, 0)
    client.close()
    assert redis.keys("stat:*") == []


def test_five_slow_answers_in_a_row_are_worth_one_warning(
    rig: Rig, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    patient = Patient(rig.config(url=proxy.url))
    proxy.on(named("PING"), Delay(reply_s=0.06), times=7)

    with caplog.at_level(logging.WARNING, "wurk"):
        for _ in range(7):
            patient.beat()

    assert sum("answers slowly" in record.getMessage() for record in caplog.records) == 1


def test_a_quiet_worker_beats_on(redis: redis_py.Redis, rig: Rig) -> None:
    launcher = rig.launcher(heartbeat_interval=0.05)
    launcher.quiet()
    wait_for(lambda: redis.hget(ME, "quiet") == b"true")
    first = redis.hget(ME, "beat")

    wait_for(lambda: redis.hget(ME, "beat") != first)


def test_a_process_that_is_gone_expires_from_redis_by_itself(redis: redis_py.Redis, rig: Rig) -> None:
    patient = Patient(rig.config(heartbeat_ttl=0.2))
    patient.busy.enter("t", Work(Lane("q", "queue:q", "p"), payload(), monotonic()))
    patient.beat()
    assert redis.exists(ME, f"{ME}:work") == 2

    wait_for(lambda: redis.exists(ME, f"{ME}:work") == 0, 2)


def test_idle_connections_are_closed_with_a_beat_where_that_is_wanted(rig: Rig, proxy: Proxy) -> None:
    config = rig.config(url=proxy.url, redis_idle_timeout=0.05)
    patient = Patient(config)
    config.redis.run(lambda session: (session.execute("PING"), config.redis.execute("PING")))
    assert len(proxy.lines()) == 2, "used at the same time"
    time.sleep(0.1)

    patient.beat()

    wait_for(lambda: len(proxy.lines()) == 1)
