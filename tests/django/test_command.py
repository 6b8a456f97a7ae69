"""`manage.py wurk`: options, messages and exit codes. Each test runs the real command, most in a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis as redis_py
from django.core.management import CommandError, call_command

from tests.django.conftest import CHECKOUT, Configure, Project
from tests.support import faults
from tests.support.proxy import Proxy
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions

T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str, timeout_s: float = 20.0) -> T:
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not come within {timeout_s} s"
        time.sleep(0.02)
    return found


@pytest.fixture
def push(redis_url: str) -> Any:
    """`push("noticed.jobs.add", 1, 2)`: as another program would."""
    config = Config(redis=RedisOptions(redis_url))
    yield lambda name, *args, **fields: Client(config).push({"class": name, "args": list(args), **fields})
    config.reset_redis_pools()


@contextmanager
def running(project: Project, *arguments: str, **wurk: Any) -> Any:
    """The worker in the background; at the end it and its children are killed if they are still there."""
    worker = project.start("wurk", *arguments, **wurk)
    try:
        yield worker
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def info_of(redis: redis_py.Redis) -> dict[str, Any] | None:
    """What the one worker says of itself."""
    for identity in redis.smembers("processes"):
        told = redis.hget(identity, "info")
        if told:
            return dict(json.loads(told))
    return None


# --- burst ------------------------------------------------------------------------------------------------------------


def test_burst_runs_what_waits_and_exits_with_zero(project: Project, push: Any, redis: redis_py.Redis) -> None:
    push("noticed.jobs.add", 1, 2)
    push("noticed.jobs.add_later", 3, 4)
    done = project.manage("wurk", "--burst")
    assert done.returncode == 0, done.stderr
    assert sorted(project.noted()) == [3, 7]
    assert redis.keys("queue:*") == []
    assert redis.smembers("processes") == set()


def test_burst_promotes_what_is_due_first(project: Project, push: Any) -> None:
    push("noticed.jobs.add", 1, 2, at=time.time() - 1)
    assert project.manage("wurk", "--burst").returncode == 0
    assert project.noted() == [3]


def test_burst_with_nothing_to_do_exits_at_once(project: Project) -> None:
    assert project.manage("wurk", "--burst").returncode == 0


def test_burst_waits_for_a_claim_whose_answer_is_still_on_its_way(project: Project, push: Any, proxy: Proxy) -> None:
    push("noticed.jobs.add", 1, 2)
    proxy.on(faults.named("EVALSHA", "EVAL"), faults.Delay(reply_s=0.3), times=None)
    project.url = proxy.url
    assert project.manage("wurk", "--burst").returncode == 0
    assert project.noted() == [3]


def test_burst_leaves_a_paused_queue_alone_and_ends(project: Project, push: Any, redis: redis_py.Redis) -> None:
    push("noticed.jobs.add", 1, 2)
    redis.sadd("paused", "default")
    assert project.manage("wurk", "--burst").returncode == 0
    assert project.noted() == []
    assert redis.llen("queue:default") == 1


def test_burst_serves_the_named_queues_only(project: Project, push: Any, redis: redis_py.Redis) -> None:
    push("noticed.jobs.add", 1, 1, queue="here")
    push("noticed.jobs.add", 2, 2, queue="there")
    assert project.manage("wurk", "--burst", "-q", "here").returncode == 0
    assert project.noted() == [2]
    assert redis.llen("queue:there") == 1


def test_the_worker_needs_no_database_and_imports_nothing_heavy_that_no_job_uses(project: Project, push: Any) -> None:
    push("noticed.jobs.imported")
    assert project.manage("wurk", "--burst").returncode == 0
    (modules,) = project.noted()
    heavy = {"cryptography.hazmat", "croniter", "channels", "django.contrib.admin", "wurk_django.dashboard", "sqlite3"}
    assert heavy & set(modules) == set()


def test_a_job_knows_itself_from_far_below(project: Project, push: Any) -> None:
    jid = push("noticed.jobs.who", queue="who")
    assert project.manage("wurk", "--burst", "-q", "who").returncode == 0
    assert project.noted() == [[jid, "noticed.jobs.who", "who", None]]


def test_a_retried_job_knows_its_count(project: Project, push: Any, redis: redis_py.Redis) -> None:
    # given: a job that failed once
    jid = push("noticed.jobs.Flaky")
    project.manage("wurk", "--burst")
    ((member, _due),) = redis.zrange("retry", 0, -1, withscores=True)
    # when its time comes
    redis.zadd("retry", {member: time.time() - 1})
    project.manage("wurk", "--burst")
    # then
    assert project.noted() == [[jid, 0]]


# --- options and exit codes -------------------------------------------------------------------------------------------


@pytest.mark.oracle("core:F1")
def test_the_command_line_shapes_the_process(project: Project, redis: redis_py.Redis) -> None:
    options = ("-q", "foo,3", "-q", "bar", "-c", "2", "-e", "staging")
    with running(project, *options, QUEUES=["other"], CONCURRENCY=9, LABELS=["blue"], TAG="shop") as worker:
        info = wait_for(lambda: info_of(redis), "the worker's heartbeat")
        assert info["concurrency"] == 2
        assert info["labels"] == ["blue"]
        assert info["tag"] == "shop"
        assert sorted(set(info["queues"])) == ["bar", "foo"]
        assert [capsule["weights"] for capsule in info["capsules"].values()] == [{"foo": 3, "bar": 0}]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert redis.smembers("processes") == set()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_ends_it_with_zero(stop: signal.Signals, project: Project, redis: redis_py.Redis) -> None:
    with running(project) as worker:
        wait_for(lambda: info_of(redis), "the worker's heartbeat")
        worker.send_signal(stop)
        assert worker.wait(20) == 0


@pytest.mark.oracle("core:F3")
@pytest.mark.parametrize(
    "arguments",
    [["-c", "0"], ["-t", "-2"], ["-c", "many"], ["-t", "0"], ["-p", "0"], ["-c", "1.5"], ["--nonsense"], ["stray"]],
)
def test_wrong_arguments_are_refused(arguments: list[str], configure: Configure) -> None:
    configure()
    with pytest.raises(CommandError, match=r"wurk|argument|Error"):
        call_command("wurk", *arguments)


def test_wrong_arguments_exit_with_two_as_everywhere_in_django(project: Project) -> None:
    done = project.manage("wurk", "-c", "0")
    assert done.returncode == 2
    assert "must be 1 or more, got 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_tells_every_option_and_exits_with_zero(project: Project) -> None:
    done = project.manage("wurk", "--help")
    assert done.returncode == 0
    for option in ("--queue", "--concurrency", "--processes", "--timeout", "--environment", "--burst", "--reload"):
        assert option in done.stdout


def test_one_process_on_the_command_line_comes_before_the_settings(
    project: Project,
) -> None:
    assert project.manage("wurk", "--burst", "-p", "1", PROCESSES=4).returncode == 0


@pytest.mark.parametrize(
    ("wurk", "told"),
    [
        ({"CONCURENCY": 5}, "Did you mean 'CONCURRENCY'?"),
        ({"TIMEOUT": 0}, "WURK['TIMEOUT'] must be a number above 0; it is 0."),
        ({"REDIS": "redis://127.0.0.1:1/0"}, "Redis at redis://127.0.0.1:1/0 cannot be used"),
        ({"SERVER_MIDDLEWARE": ["no.where"]}, "'no.where' cannot be imported"),
    ],
)
def test_what_makes_a_start_impossible_is_one_message_and_exit_code_one(
    wurk: dict[str, Any], told: str, project: Project
) -> None:
    done = project.manage("wurk", "--burst", **wurk)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_no_redis_in_production_is_refused_with_the_way_out(tmp_path: Path) -> None:
    done = Project(None, tmp_path).manage("wurk", "--burst")
    assert done.returncode == 1
    assert "REDIS_URL" in done.stderr


# --- demo -------------------------------------------------------------------------------------------------------------


def test_demo_runs_what_the_settings_name_and_exits_with_its_code(project: Project) -> None:
    assert project.manage("wurk", "--demo", "--once", DEMO="noticed.jobs.demo").returncode == 3
    assert project.manage("wurk", "--demo", DEMO="noticed.jobs.demo").returncode == 3
    assert project.noted() == [["demo", True], ["demo", False]]


@pytest.mark.parametrize(
    ("arguments", "wurk", "told"),
    [
        (["--demo"], {}, "no demo"),
        (["--demo"], {"DEMO": "no.where"}, "no.where"),
        (["--once"], {}, "goes with --demo"),
    ],
)
def test_a_demo_that_cannot_be_is_refused(
    arguments: list[str], wurk: dict[str, Any], told: str, configure: Configure
) -> None:
    configure(**wurk)
    with pytest.raises(CommandError, match=told) as caught:
        call_command("wurk", *arguments)
    assert caught.value.returncode == 1


# --- reload -----------------------------------------------------------------------------------------------------------


def test_reload_takes_up_changed_code(redis_url: str, tmp_path: Path, push: Any, redis: redis_py.Redis) -> None:
    # given: a copy of the project whose worker watches its code
    copy = Project(redis_url, tmp_path / "scratch")
    copy.path = tmp_path / "project"
    copy.scratch.mkdir()
    shutil.copytree(CHECKOUT / "tests" / "django" / "project", copy.path)
    jobs = copy.path / "noticed" / "jobs.py"
    with running(copy, "--reload") as worker:
        push("noticed.jobs.add", 1, 2)
        wait_for(lambda: copy.noted() == [3], "the first run")
        before = redis.smembers("processes")
        # when: more than once, since the reloader may not have seen the first state yet
        changed = jobs.read_text().replace("left + right", "left * right * 100")

        def change() -> set[bytes]:
            jobs.write_text(changed)
            time.sleep(0.5)
            return redis.smembers("processes") - before

        wait_for(change, "the process of the new code")
        push("noticed.jobs.add", 1, 2)
        # then
        wait_for(lambda: copy.noted() == [3, 200], "the run of the new code")
        os.killpg(worker.pid, signal.SIGINT)
        worker.wait(20)
