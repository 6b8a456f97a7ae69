"""Probes: what is alive, what is ready, and a listener that nobody can hold up."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest
import redis as redis_py

from tests.support.proxy import Proxy
from tests.support.servers import RedisServer
from tests.worker.probing import HOST, LISTEN, can_bind, get, probed, send
from tests.worker.rig import Recorder, Rig, enqueue, payload, stays, wait_for
from wurk_django.connection import RedisOptions
from wurk_django.worker import identity, vitals
from wurk_django.worker.health import read_address
from wurk_django.worker.signals import SignalLoop


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every probe asks Redis anew."""
    monkeypatch.setattr(vitals, "KEPT_S", 0.0)


# --- alive ------------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:HP1", "reliability:HP5")
def test_a_worker_is_live_until_it_goes_quiet(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wurk")
    launcher, port = probed(rig)
    assert port > 0
    assert f"health checks are answered on {HOST} port {port}" in caplog.text

    reply = get(port, "/live")
    assert (reply.status, reply.json) == (200, {"status": "ok", "check": "live", "reason": None})
    assert "\r\nConnection: close" in reply.head
    assert "\r\nContent-Type: application/json" in reply.head

    launcher.quiet()
    reply = get(port, "/live?why=1")
    assert (reply.status, reply.json["reason"]) == (503, "stopping")


def test_a_worker_that_stops_says_so_until_its_last_job_is_done(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    gate = jobs.gated_job("slow")
    launcher, port = probed(rig, timeout=10)
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: jobs.calls)

    stopping = threading.Thread(target=launcher.stop)
    stopping.start()
    wait_for(lambda: launcher.quieted)
    assert get(port, "/live").json["reason"] == "stopping"

    gate.set()
    stopping.join(10)
    with pytest.raises(ConnectionRefusedError):
        send(port, b"")


def test_a_child_that_stops_leaves_the_port_to_its_siblings_at_once(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    gate = jobs.gated_job("slow")
    config = rig.config(timeout=10, health_check=LISTEN)
    config.fleet_size = 2
    launcher, port = probed(rig, config)
    enqueue(redis, "default", payload("slow"))
    wait_for(lambda: jobs.calls)

    stopping = threading.Thread(target=launcher.stop)
    stopping.start()
    try:
        wait_for(lambda: can_bind(port), what="a free port")
        assert stopping.is_alive(), "its job still runs"
    finally:
        gate.set()
        stopping.join(10)


@pytest.mark.oracle("reliability:HP6", "reports:P12")
def test_a_worker_whose_main_loop_is_stuck_is_not_live(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: a main loop that serves signals
    stuck, loosened = threading.Event(), threading.Event()
    monkeypatch.setattr("wurk_django.worker.signals.dump_threads", lambda: stuck.set() or loosened.wait(20))
    launcher, port = probed(rig, wedged_after=1.5)
    signals = SignalLoop()
    serving = threading.Thread(target=signals.serve, args=(launcher,))
    serving.start()
    try:
        wait_for(lambda: get(port, "/live").status == 200)
        assert stays(lambda: get(port, "/live").status == 200, 1.8), "it ticks"
        # when it hangs while every other thread is well
        signals.send("TTIN")
        assert stuck.wait(5)
        # then
        wait_for(lambda: get(port, "/live").status == 503)
        assert get(port, "/live").json == {"status": "unavailable", "check": "live", "reason": "wedged"}
        assert get(port, "/ready").status == 200
    finally:
        loosened.set()
        signals.send("TERM")
        serving.join()
        signals.restore()


@pytest.mark.oracle("reports:P12")
def test_a_worker_whose_threads_are_all_busy_is_live_and_ready(redis: redis_py.Redis, rig: Rig, jobs: Recorder) -> None:
    jobs.gated_job("slow")
    _launcher, port = probed(rig)
    enqueue(redis, "default", *(payload("slow", number) for number in range(20)))
    wait_for(lambda: len(jobs.calls) == 2)

    replies = [get(port, "/live") for _ in range(10)]
    assert {reply.status for reply in replies} == {200}
    assert min(reply.took_s for reply in replies) < 0.05
    reply = get(port, "/ready")
    assert (reply.status, reply.json) == (200, {"status": "ok", "check": "ready", "reason": None})


# --- ready ------------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reliability:HP2", "reports:P02", "reports:P12")
def test_without_redis_a_worker_is_live_and_not_ready_until_redis_is_back(rig: Rig, server: RedisServer) -> None:
    _launcher, port = probed(rig, rig.config(url=server.url, health_check=LISTEN, ready_window=1.5))
    assert get(port, "/ready").status == 200

    server.kill()

    reply = get(port, "/ready")
    assert (reply.status, reply.json["reason"]) == (503, "redis unreachable")
    assert get(port, "/live").status == 200

    server.start()
    wait_for(lambda: get(port, "/ready").status == 200, 10, "readiness after the outage")


def test_a_redis_that_hangs_holds_up_readiness_but_not_liveness(rig: Rig, proxy: Proxy) -> None:
    _launcher, port = probed(rig, rig.config(url=proxy.url, health_check=LISTEN))
    assert get(port, "/ready").status == 200
    proxy.black_hole()

    waiting = [threading.Thread(target=get, args=(port, "/ready")) for _ in range(4)]
    for thread in waiting:
        thread.start()
    try:
        assert max(get(port, "/live").took_s for _ in range(5)) < 0.5
    finally:
        for thread in waiting:
            thread.join(10)
        proxy.heal()


def test_a_worker_whose_beats_do_not_arrive_is_not_ready(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, port = probed(rig, ready_window=0.6)
    assert get(port, "/ready").status == 200

    monkeypatch.setattr(launcher.heartbeat._loop, "_tick", lambda: None)

    wait_for(lambda: get(port, "/ready").status == 503)
    assert get(port, "/ready").json["reason"] == "heartbeat stale"


def test_a_redis_that_refuses_makes_a_worker_not_ready(rig: Rig, server: RedisServer) -> None:
    launcher, port = probed(rig, rig.config(url=server.url, health_check=LISTEN))
    with server.client() as client:
        client.config_set("requirepass", "secret")
        launcher.vitals.close()

        reply = get(port, "/ready")

        assert (reply.status, reply.json["reason"]) == (503, "redis refuses: NOAUTH")
        client.config_set("requirepass", "")


@pytest.mark.parametrize(("fresh", "min_ready", "status"), [(1, None, 503), (2, None, 200), (2, 3, 503), (4, 4, 200)])
def test_a_fleet_is_ready_when_enough_of_its_children_beat(
    fresh: int, min_ready: int | None, status: int, redis: redis_py.Redis, rig: Rig
) -> None:
    # given: a child of four, its siblings' heartbeats, and those of others
    config = rig.config(health_check=LISTEN, min_ready=min_ready)
    config.fleet_size = 4
    _launcher, port = probed(rig, config)
    beats = [time.time()] * (fresh - 1) + [time.time() - 31] * (4 - fresh)
    for number, beat in enumerate(beats):
        beat_of(redis, f"{identity.host()}:{1000 + number}:{identity.NONCE}", beat)
    for other in (f"{identity.host()}:9:000000000000", f"elsewhere:8:{identity.NONCE}"):
        beat_of(redis, other, time.time())

    reply = get(port, "/ready")

    assert reply.status == status
    assert (reply.json["reason"] or "heartbeat stale").startswith("heartbeat stale")


def beat_of(redis: redis_py.Redis, name: str, beat: float, **fields: Any) -> None:
    redis.sadd("processes", name)
    redis.hset(name, mapping={"info": "{}", "beat": beat, "busy": 1, "concurrency": 5, "quiet": "false", **fields})


# --- the listener -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [("GET", "/", 404), ("GET", "/live/", 404), ("POST", "/live", 405), ("HEAD", "/ready", 405), ("GET", "/nope", 404)],
)
def test_other_paths_and_verbs_are_refused(verb: str, path: str, status: int, rig: Rig) -> None:
    _launcher, port = probed(rig)

    reply = get(port, path, verb)

    assert reply.status == status
    assert ("\r\nAllow: GET" in reply.head) is (status == 405)


@pytest.mark.parametrize("request_", [b"\r\n\r\n", b"nonsense\r\n\r\n", b"\xff\xfe \x00\r\n\r\n"])
def test_what_is_no_request_is_answered_and_harms_nobody(request_: bytes, rig: Rig) -> None:
    _launcher, port = probed(rig)

    reply = send(port, request_)

    assert reply is not None
    assert reply.status == 404
    assert rig.errors == []


@pytest.mark.oracle("reliability:HP4")
def test_a_client_that_stalls_holds_up_nobody_and_is_dropped_after_a_second(rig: Rig) -> None:
    _launcher, port = probed(rig)
    with socket.create_connection((HOST, port), 5) as stalled:
        stalled.sendall(b"GET /live HTT")
        started = time.monotonic()

        assert get(port, "/live").took_s < 0.5

        assert stalled.recv(100) == b""
        assert 0.5 < time.monotonic() - started < 2


def test_a_client_that_drips_has_one_second_for_all_of_it(rig: Rig) -> None:
    _launcher, port = probed(rig)
    with socket.create_connection((HOST, port), 5) as slow:
        started = time.monotonic()
        with pytest.raises(OSError):  # reset or broken pipe
            while time.monotonic() - started < 4:
                slow.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - started < 3
    assert rig.errors == []


def test_a_head_without_an_end_is_not_read_for_ever(rig: Rig) -> None:
    _launcher, port = probed(rig)

    started = time.monotonic()
    assert send(port, b"GET /live HTTP/1.1\r\n" + b"x" * 9000) is None
    assert time.monotonic() - started < 0.7, "not after the second that a request has"


@pytest.mark.oracle("extras:HL-1")
def test_among_a_hundred_idle_connections_a_probe_is_answered_within_two_seconds(rig: Rig) -> None:
    _launcher, port = probed(rig)
    with ExitStack() as idle:
        for _ in range(100):
            idle.enter_context(socket.create_connection((HOST, port), 5))
        started = time.monotonic()

        first = get(port, "/live")
        wait_for(lambda: get(port, "/live").status == 200, 3)

        assert time.monotonic() - started < 2
        assert first.status == 503
        assert first.json["reason"] == "too many connections"


def test_without_a_setting_nothing_listens(rig: Rig) -> None:
    launcher = rig.launcher()

    assert launcher.health.port is None
    assert "wurk-health" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (None, None),
        (False, None),
        (True, ("0.0.0.0", 7433)),
        (9000, ("0.0.0.0", 9000)),
        ("9000", ("0.0.0.0", 9000)),
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("[::1]:9000", ("::1", 9000)),
    ],
)
def test_where_to_listen(value: Any, address: tuple[str, int] | None) -> None:
    assert read_address(value) == address


def test_the_options_of_the_probes_pool_give_up_soon(rig: Rig) -> None:
    launcher = rig.launcher(rig.config(redis=RedisOptions(rig.url, read_timeout_s=30), health_check=LISTEN))

    pool = launcher.vitals._pool()

    assert (pool.options.read_timeout_s, pool.options.connect_timeout_s) == (1.0, 1.0)
