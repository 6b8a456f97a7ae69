"""`manage.py wurk` quiet, stop, pause, unpause, health, check and mark-deploy: what they do and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from django.core.management import CommandError, call_command

from tests.commands.conftest import Configure, Project
from tests.django.test_command import info_of, running, wait_for
from tests.worker.probing import free_port
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.storage import deploys

Wurk = Callable[..., str]


def enter(redis: redis_py.Redis, identity: str, **info: Any) -> None:
    redis.sadd("processes", identity)
    redis.hset(identity, mapping={"info": json.dumps(info), "beat": 1})


# --- quiet and stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "name"), [("quiet", b"TSTP"), ("stop", b"TERM")])
def test_a_signal_reaches_the_one_that_is_named_or_all_but_embedded_ones(
    word: str, name: bytes, redis: redis_py.Redis, wurk: Wurk
) -> None:
    enter(redis, "a:1:x")
    enter(redis, "b:2:y")
    enter(redis, "host:3:z", embedded=True)

    printed = wurk(word, "b:2:y")
    assert printed.startswith("b:2:y ")
    assert redis.lrange("b:2:y-signals", 0, -1) == [name]
    assert 0 < redis.ttl("b:2:y-signals") <= 60
    assert not redis.exists("a:1:x-signals", "host:3:z-signals")

    printed = wurk(word, "--all")
    assert redis.lrange("a:1:x-signals", 0, -1) == [name]
    assert "host:3:z lives in another program" in printed
    assert not redis.exists("host:3:z-signals")


def test_a_process_that_is_not_there_and_one_that_cannot_be_stopped_end_with_one(
    redis: redis_py.Redis, wurk: Wurk
) -> None:
    enter(redis, "host:3:z", embedded=True)

    with pytest.raises(CommandError, match="no process is named 'a:1:x'; there is host:3:z") as caught:
        wurk("stop", "a:1:x")
    assert caught.value.returncode == 1
    with pytest.raises(SystemExit) as ended:
        wurk("quiet", "host:3:z")
    assert ended.value.code == 1


@pytest.mark.parametrize(
    "arguments", [["stop"], ["quiet"], ["stop", "--all", "a:1:x"], ["pause"], ["health", "--dead"]]
)
def test_wrong_arguments_are_a_two(arguments: list[str], wurk: Wurk, project: Project) -> None:
    with pytest.raises(CommandError):
        wurk(*arguments)


def test_a_real_worker_is_seen_goes_quiet_and_stops(project: Project, redis: redis_py.Redis) -> None:
    with running(project, HEARTBEAT_INTERVAL=0.2) as worker:
        wait_for(lambda: info_of(redis), "the worker's heartbeat")
        identity = json.loads(project.manage("wurk", "status", "--json").stdout)["processes"][0]["identity"]

        assert project.manage("wurk", "quiet", identity).returncode == 0
        wait_for(lambda: redis.hget(identity, "quiet") == b"true", "the quiet worker's beat")

        done = project.manage("wurk", "stop", "--all", "--settings", "settings")
        assert (done.returncode, done.stdout) == (0, f"{identity} stops at its next heartbeat\n")
        assert worker.wait(20) == 0
    assert project.manage("wurk", "stop", identity).returncode == 1
    assert project.manage("wurk", "stop").returncode == 2


# --- pause ------------------------------------------------------------------------------------------------------------


def test_queues_are_paused_and_served_again(redis: redis_py.Redis, wurk: Wurk) -> None:
    assert wurk("pause", "low", "later") == "low is paused\nlater is paused\n"
    assert wurk("pause", "low") == "low was paused already\n"
    assert redis.smembers("paused") == {b"low", b"later"}

    assert wurk("unpause", "low", "high") == "low is served again\nhigh was not paused\n"
    assert redis.smembers("paused") == {b"later"}


def test_what_cannot_be_a_queue_is_not_paused(wurk: Wurk, redis: redis_py.Redis) -> None:
    with pytest.raises(CommandError, match="cannot be a queue name"):
        wurk("pause", "a|b")
    assert not redis.exists("paused")


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("reports:P12")
def test_a_fleet_answers_probes_until_it_stops(project: Project) -> None:
    port = free_port()
    settings = {"HEALTH_CHECK": f"127.0.0.1:{port}", "HEARTBEAT_INTERVAL": 0.2}
    assert project.manage("wurk", "health", **settings).returncode == 1
    with running(project, "-p", "2", **settings) as fleet:

        def ready() -> bool:
            done = project.manage("wurk", "health", "--ready", **settings)
            return (
                (done.returncode, json.loads(done.stdout)["status"]) == (0, "ok") if done.stdout[:1] == "{" else False
            )

        wait_for(ready, "a ready fleet")
        done = project.manage("wurk", "health", "--port", str(port))
        assert (done.returncode, json.loads(done.stdout)["check"]) == (0, "live")
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(20) == 0


# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("extras:SW-8")
def test_check_looks_at_settings_server_and_jobs_and_starts_nothing(redis: redis_py.Redis, project: Project) -> None:
    redis.sadd("queues", "default", "forgotten", "empty")
    redis.lpush("queue:forgotten", "{}")
    redis.lpush("queue:default", "{}")

    done = project.manage("wurk", "check")

    assert done.returncode == 0, done.stderr
    settings, server, jobs, note = done.stdout.splitlines()
    assert settings == "settings: fine"
    assert "maxmemory-policy noeviction" in server
    assert int(jobs.split()[1]) > 0
    assert note.endswith(": forgotten")
    assert redis.llen("queue:default") == 1
    assert not redis.exists("processes")


def test_check_knows_the_queues_of_every_slot(redis: redis_py.Redis, project: Project) -> None:
    redis.sadd("queues", "default", "low")
    for name in ("default", "low"):
        redis.lpush(f"queue:{name}", "{}")

    done = project.manage("wurk", "check", TOPOLOGY=[{"QUEUES": ["low"]}, {"QUEUES": ["high"]}])

    assert done.stdout.rstrip().endswith("served by these settings: default"), done.stderr


def test_check_refuses_what_a_worker_would_refuse(redis: redis_py.Redis, configure: Configure, settings: Any) -> None:
    settings.WURK = {"CONCURENCY": 5}
    with pytest.raises(CommandError, match="Did you mean 'CONCURRENCY'") as caught:
        call_command("wurk", "check")
    assert caught.value.returncode == 1

    configure()
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(CommandError, match="would throw jobs away"):
            call_command("wurk", "check")
    finally:
        redis.config_set("maxmemory-policy", "noeviction")


# --- mark-deploy ------------------------------------------------------------------------------------------------------


@pytest.mark.oracle("features:DM1", "features:DM2")
def test_three_marks_of_two_labels_in_one_minute_are_one_entry(redis: redis_py.Redis, redis_url: str) -> None:
    config = Config(redis=RedisOptions(redis_url))
    at = datetime(2026, 5, 29, 10, 15, 30, tzinfo=UTC)

    stamps = [
        deploys.mark(config.redis, label, at.replace(second=second))
        for label, second in (("first", 30), ("first", 50), ("second", 55))
    ]

    assert stamps == ["2026-05-29T10:15:00Z", None, "2026-05-29T10:15:00Z"]
    assert redis.hgetall("20260529-marks") == {b"2026-05-29T10:15:00Z": b"first"}
    assert deploys.marks(config.redis, "20260529") == {"2026-05-29T10:15:00Z": "first"}
    assert 0 < redis.ttl("20260529-marks") <= 7_776_000
    assert 0 < redis.ttl("deploylock-first") <= 60
    config.reset_redis_pools()


@pytest.mark.oracle("features:DM3", "features:DM4")
def test_a_mark_whose_lock_has_lapsed_is_made_again(redis: redis_py.Redis, redis_url: str) -> None:
    config = Config(redis=RedisOptions(redis_url))
    at = datetime(2026, 5, 29, 10, 15, 30, tzinfo=UTC)
    # given: one machine that died between its lock and its mark
    redis.set("deploylock-v1", "x", px=50)
    assert deploys.mark(config.redis, "v1", at) is None
    assert not redis.exists("20260529-marks")
    # when the lock has lapsed, twice
    for minute in (16, 18):
        wait_for(lambda: not redis.exists("deploylock-v1"), "the end of the lock")
        assert deploys.mark(config.redis, "v1", at.replace(minute=minute))
        redis.pexpire("deploylock-v1", 50)
    # then
    assert redis.hvals("20260529-marks") == [b"v1", b"v1"]
    config.reset_redis_pools()


def test_a_mark_takes_its_label_from_the_command_line_or_from_git(
    redis: redis_py.Redis, wurk: Wurk, settings: Any, tmp_path: Path
) -> None:
    assert wurk("mark-deploy", "v1.2").endswith(": v1.2\n")
    assert wurk("mark-deploy", "v1.2").startswith("marked already")

    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match="no git commit"):
        wurk("mark-deploy")

    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "Sell bicycles"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    assert wurk("mark-deploy").endswith(" Sell bicycles\n")


# --- the face ---------------------------------------------------------------------------------------------------------


def test_help_names_every_word(project: Project) -> None:
    done = project.manage("wurk", "--help")
    for word in ("status", "quiet", "stop", "pause", "unpause", "health", "check", "mark-deploy"):
        assert word in done.stdout
    done = project.manage("wurk", "pause", "--help")
    assert done.returncode == 0
    assert "queue" in done.stdout


def test_a_redis_that_is_away_is_one_line_and_a_one(project: Project) -> None:
    done = project.manage("wurk", "status", REDIS="redis://127.0.0.1:1/0")
    assert done.returncode == 1
    assert "cannot connect to Redis" in done.stderr
    assert "Traceback" not in done.stderr
