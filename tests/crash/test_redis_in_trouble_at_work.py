"""Redis is full, slow, cut off, swapped or crowded while there is work: how fast it goes on, and what runs twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import trouble
from tests.crash.harness import Stage, claim_or_ack, is_claim, promote
from tests.support.processes import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker.reaper import Reaper

THREADS = 5
FOREIGN_KEYS = int(os.environ.get("CRASH_FOREIGN_KEYS") or 1_000_000)

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


def ended(stage: Stage) -> int:
    return len(stage.ledger.entries("end"))


@pytest.mark.oracle("safety:R11", "safety:G6")
def test_a_full_redis_is_drained_as_fast_as_another(server: RedisServer, stage: Stage) -> None:
    worker = stage.worker(concurrency=THREADS, url=server.url)
    worker.wait_until_ready(stage.redis)

    def waiting() -> int:
        length: int = stage.redis.llen("queue:default")
        return length

    def jobs_per_second(seconds: float) -> float:
        began, before = time.monotonic(), waiting()
        time.sleep(seconds)  # a measurement
        return (before - waiting()) / (time.monotonic() - began)

    jids = stage.push_many("Work", [[5]] * 9000)
    eventually(lambda: waiting() < 8900)
    normal = jobs_per_second(3.0)
    end = trouble.full(server, stage)
    full = jobs_per_second(2 * 2.0)  # longer than a heartbeat lives: without beats everybody would look dead
    identity = worker.identity(stage.redis)
    assert waiting(), "there must be work to the end"
    end()

    print(f"{full:.0f} jobs a second while Redis is full, {normal:.0f} otherwise: {100 * full / normal:.0f} %")
    assert identity, "it beats while Redis is full"
    assert full >= 0.7 * normal, "the machine may be busy with something else; the figure above should say 90 %"
    stage.wait_until_done(jids, 60)
    assert set(stage.ledger.starts().values()) == {1}, "no reaping afterwards"


@pytest.mark.oracle("safety:R11")
def test_retries_and_deaths_are_booked_while_redis_is_full(server: RedisServer, stage: Stage) -> None:
    worker = stage.worker(concurrency=2, url=server.url)
    worker.wait_until_ready(stage.redis)
    holds = [stage.push("Hold", "gate") for _ in range(2)]
    eventually(lambda: stage.ledger.jids("start") == set(holds))
    flaky, doomed = stage.push("Flaky"), stage.push("Doomed", retry=0)

    end = trouble.full(server, stage)
    stage.open_gate("gate")
    eventually(lambda: stage.where(flaky) == ["retry"], 10, "the retry")
    eventually(lambda: stage.where(doomed) == ["dead"], 10, "the death")
    end()

    stage.wait_until_done([*holds, flaky, doomed])
    assert set(stage.ledger.starts().values()) == {1}


@pytest.mark.oracle("safety:R17")
def test_a_slow_line_costs_few_round_trips_a_job(stage: Stage) -> None:
    worker = stage.worker(concurrency=10, HEARTBEAT_TTL=60)
    worker.wait_until_ready(stage.redis)
    jids = stage.push_many("Work", [[20]] * 200)
    stage.proxy.latency(0.3, 0.2)
    stage.proxy.clear()
    before = ended(stage)
    began = time.monotonic()
    eventually(lambda: ended(stage) >= before + 60, 40, "sixty jobs over a slow line")
    took_s, done = time.monotonic() - began, ended(stage) - before
    trips = len([command for command in stage.proxy.commands if claim_or_ack(command)])
    stage.proxy.latency(0)

    k = trips / done
    print(f"{done / took_s:.1f} jobs a second, {k:.2f} round trips a job")
    assert k <= 1
    stage.wait_until_done(jids, 40)
    assert set(stage.ledger.starts().values()) == {1}


@pytest.mark.oracle("safety:R18")
@pytest.mark.parametrize("direction", ["request", "reply", "both"])
def test_a_worker_that_was_cut_off_comes_back_and_books_nothing_of_others(
    direction: str, server: RedisServer, stage: Stage
) -> None:
    cut_off = stage.worker(concurrency=2)
    cut_off.wait_until_ready(stage.redis)
    jids = [stage.push("Hold", "gate"), stage.push("FailAt", "gate")]
    eventually(lambda: stage.ledger.jids("start") == set(jids))
    other = stage.worker(concurrency=2, url=server.url)
    other.wait_until_ready(stage.redis)

    heal = trouble.partitioned(direction)(server, stage)
    eventually(lambda: len(stage.ledger.entries("start", pid=other.pid)) == 2, 20, "the other to take over")
    stage.proxy.clear()
    stage.open_gate("gate")
    eventually(lambda: len(stage.ledger.entries("end")) >= 3, 10, "the jobs to end in both")
    eventually(lambda: other.identity(stage.redis))
    heal()
    last = stage.push_many("Work", [[1]] * 20)
    stage.wait_until_done([*jids, *last])

    eventually(lambda: cut_off.identity(stage.redis), 10, "the worker that was cut off, in the process set")
    assert not stage.redis.zcard("retry"), "the failure of the one that lost its job is not booked"
    assert max(stage.ledger.starts().values()) <= 2
    assert all(count == 1 for (jid, _), count in stage.ledger.starts().items() if jid in last)
    assert (cut_off.code, other.code) == (None, None)


@pytest.mark.oracle("safety:R19")
def test_a_flapping_line_of_one_worker_repeats_no_more_than_it_could_hold(server: RedisServer, stage: Stage) -> None:
    flapping = stage.worker(concurrency=2)
    other = stage.worker(concurrency=2, url=server.url)
    for worker in (flapping, other):
        worker.wait_until_ready(stage.redis)
    jids = stage.push_many("Work", [[20]] * 800)
    cuts = 0
    while not stage.ledger.jids("end") >= set(jids) and cuts < 6:
        stage.proxy.black_hole()
        time.sleep(1.0)
        stage.proxy.heal()
        time.sleep(0.7)
        cuts += 1

    stage.wait_until_done(jids, 30)

    repeats = sum(count - 1 for count in stage.ledger.starts().values())
    print(f"{cuts} cuts, {repeats} repeats")
    assert repeats <= cuts * 2 * 2
    assert (flapping.code, other.code) == (None, None)


@pytest.mark.oracle("safety:R16")
def test_a_fleet_does_not_stampede_when_a_frozen_server_goes_on(server: RedisServer, stage: Stage) -> None:
    workers = [stage.worker(concurrency=2, HEARTBEAT_TTL=60) for _ in range(2)]
    for worker in workers:
        worker.wait_until_ready(stage.redis)
    server.pause()
    time.sleep(6)

    stage.proxy.clear()
    server.resume()
    time.sleep(1.0)

    passes = len([command for command in list(stage.proxy.commands) if promote(command)]) / 2  # retry, schedule
    claims = len([command for command in list(stage.proxy.commands) if is_claim(command)])
    print(f"{passes:.0f} scheduler passes and {claims} claims in the first second, of two workers")
    assert passes <= 2 * 2 + 2 * 1 / 0.1, "each polls every 0.1 to 0.3 s here"
    assert claims <= 20
    stage.wait_until_done([stage.push("Work")])


@pytest.mark.oracle("safety:R22")
def test_an_ack_for_a_server_that_was_swapped_away_touches_nothing_on_the_other(
    server: RedisServer, stage: Stage
) -> None:
    worker = stage.worker(concurrency=2, HEARTBEAT_TTL=60)
    worker.wait_until_ready(stage.redis)
    held = stage.push("Hold", "gate")
    eventually(lambda: held in stage.ledger.jids("start"))
    with RedisServer() as second, second.client() as client:
        stage.proxy.upstream = ("127.0.0.1", second.port)
        stage.proxy.reset_all()
        elsewhere = Stage(client, stage.proxy, stage.directory)
        other = elsewhere.push("Work")
        eventually(lambda: other in stage.ledger.jids("end"), 5, "a job of the second server")
        stage.open_gate("gate")
        eventually(lambda: held in stage.ledger.jids("end"))
        more = elsewhere.push_many("Work", [[1]] * 50)
        elsewhere.wait_until_done(more)
        assert stage.where(held) == ["private"], "the first server was told nothing"
        stage.proxy.upstream = ("127.0.0.1", server.port)
        stage.proxy.reset_all()
        stage.wait_until_done([held])
        elsewhere.close()
    starts = stage.ledger.starts()
    assert starts[held, "None"] <= 2
    assert all(count == 1 for (jid, _), count in starts.items() if jid != held)
    assert worker.code is None


@pytest.mark.oracle("safety:R21")
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="a small file system needs root")
def test_a_full_disk_ends_the_server_and_costs_nothing_that_was_acknowledged(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with (
            RedisServer(append_only=True, directory=disk) as server,
            Proxy(server.port) as proxy,
            server.client() as client,
        ):
            stage = Stage(client, proxy, tmp_path)
            worker = stage.worker(HEARTBEAT_TTL=60)
            worker.wait_until_ready(client)
            jids: list[str] = []
            with pytest.raises(Exception, match="Redis"):
                while len(jids) < 20_000:
                    jids.append(stage.push("Work"))
            eventually(lambda: not server.is_running(), 10, "the end of the server")
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            server.start()
            client.connection_pool.disconnect()
            stage.wait_until_done([*jids, stage.push("Work")], 30)
            assert worker.code is None
            repeats = sum(count - 1 for count in stage.ledger.starts().values())
            assert repeats <= THREADS + 100
            worker.send(signal.SIGTERM)
            assert worker.wait() == 0
            stage.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.oracle("safety:R24")
def test_a_sweep_over_many_foreign_keys_is_bounded(server: RedisServer, stage: Stage) -> None:
    stage.redis.connection_pool.connection_kwargs["socket_timeout"] = 120
    stage.redis.connection_pool.disconnect()
    stage.redis.execute_command("DEBUG", "POPULATE", FOREIGN_KEYS, "foreign", 8)
    config = Config(Options(), RedisOptions(server.url))
    config.freeze()
    stage.redis.config_resetstat()
    stage.redis.config_set("slowlog-log-slower-than", 1000)
    stage.redis.slowlog_reset()

    began = time.monotonic()
    Reaper(config).sweep()
    took_s = time.monotonic() - began

    stats = stage.redis.info("commandstats")
    scan = stats.get("cmdstat_scan", {"calls": 0, "usec": 0})
    config.reset_redis_pools()
    per_call_ms = scan["usec"] / max(scan["calls"], 1) / 1000
    share = scan["usec"] / 1e6 / Options().reaper_interval
    print(
        f"{FOREIGN_KEYS:,} keys: {took_s:.1f} s, {scan['calls']} calls of {per_call_ms:.2f} ms, {share:.1%} of a core"
    )
    assert per_call_ms <= 1
    assert share <= 0.05 * max(FOREIGN_KEYS / 10_000_000, 0.5)
