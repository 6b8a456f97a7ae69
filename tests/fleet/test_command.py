"""`manage.py wurk` with several processes: what the command line and the settings make of it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.fleet.conftest import Fleets, children_of, is_there
from tests.support.processes import WorkerProcess, eventually
from wurk_django import conf
from wurk_django.config import Config
from wurk_django.management.commands import wurk
from wurk_django.worker import fleet


class Started:
    """What the command would have run."""

    def __init__(self) -> None:
        self.alone: list[Config] = []
        self.fleets: list[tuple[int, list[list[str]], bool]] = []

    def run_alone(self, config: Config, **_options: Any) -> int:
        self.alone.append(config)
        return 0

    def run_fleet(self, config: Config, count: int, *, slots: list[Config], burst: bool) -> int:
        self.fleets.append((count, [slot.queue_names() for slot in slots], burst))
        return 0


@pytest.fixture
def started(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    settings.WURK = {"REDIS": redis_url}
    monkeypatch.setattr(wurk.process, "run", started.run_alone)
    monkeypatch.setattr(wurk.fleet, "run", started.run_fleet)
    for name in ("WURK_COUNT", "SIDEKIQ_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return started


@pytest.mark.parametrize(
    ("arguments", "wurk", "count"),
    [
        (["-p", "3"], {}, 3),
        (["--processes", "3"], {"PROCESSES": 5}, 3),
        ([], {"PROCESSES": 5}, 5),
        (["-p", "3"], {"TOPOLOGY": [{"QUEUES": ["a"]}, {"QUEUES": ["b"]}]}, 3),
    ],
)
def test_several_processes_are_a_fleet(
    arguments: list[str], wurk: dict[str, Any], count: int, started: Started, settings: Any
) -> None:
    settings.WURK = {**settings.WURK, **wurk}

    call_command("wurk", *arguments)

    assert started.fleets == [(count, [], False)]


def test_the_environment_counts_too(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDEKIQ_COUNT", "2")

    call_command("wurk", "--burst")

    assert started.fleets == [(2, [], True)]


@pytest.mark.parametrize("arguments", [[], ["-p", "1"]])
def test_one_process_has_no_parent(arguments: list[str], started: Started) -> None:
    call_command("wurk", *arguments)

    assert len(started.alone) == 1
    assert started.fleets == []


def test_auto_is_asked_of_the_machine(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.count, "usable_cores", lambda: 4)

    call_command("wurk", "-p", "auto")

    assert started.fleets == [(4, [], False)]


@pytest.mark.oracle("extras:SW-1")
def test_the_topology_says_how_many_processes_serve_what_whatever_the_environment_says(
    started: Started, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WURK_COUNT", "7")
    settings.WURK = {
        **settings.WURK,
        "CAPSULES": {"more": {"QUEUES": ["mail"], "CONCURRENCY": 1}},
        "TOPOLOGY": [{"QUEUES": ["critical", "default"]}, {"COUNT": 2, "QUEUES": ["low"], "CONCURRENCY": 2}],
    }

    call_command("wurk")

    assert started.fleets == [(3, [["critical", "default", "mail"], *[["low", "mail"]] * 2], False)]
    assert "the environment is not asked" in caplog.text


@pytest.mark.parametrize("arguments", [["-q", "only"], ["-c", "3"]])
def test_queues_and_threads_of_the_command_line_put_the_slots_aside(
    arguments: list[str], started: Started, settings: Any
) -> None:
    settings.WURK = {**settings.WURK, "TOPOLOGY": [{"QUEUES": ["a"]}, {"QUEUES": ["b"]}]}

    call_command("wurk", *arguments)

    assert len(started.alone) == 1


@pytest.mark.parametrize(
    ("wurk", "told"),
    [
        ({"TOPOLOGY": [{"QUEUES": ["a"]}], "PROCESSES": 2}, "says how many processes there are"),
        ({"TOPOLOGY": []}, "must be a list such as"),
        ({"TOPOLOGY": [{"QUEUE": ["a"]}]}, "may have CONCURRENCY and QUEUES"),
        ({"TOPOLOGY": [{"CONCURRENCY": 0}]}, "must be a whole number"),
        ({"TOPOLOGY": [{"COUNT": 0}]}, "has a COUNT that must be a whole number"),
        ({"TOPOLOGY": ["critical"]}, "must be a list such as"),
        ({"PROCESSES": 0}, "must be a whole number"),
        ({"HUNG_TIMEOUT": 5}, "must be a number, 20 or more"),
        ({"MAXMEM_MB": -1}, "must be a number, 0 or more"),
    ],
)
def test_settings_that_make_no_fleet_are_refused(
    wurk: dict[str, Any], told: str, started: Started, settings: Any
) -> None:
    settings.WURK = {**settings.WURK, **wurk}

    with pytest.raises(CommandError, match=told):
        call_command("wurk")

    assert started.fleets == started.alone == []


@pytest.mark.parametrize(
    ("wurk", "environment", "limit"),
    [
        ({}, {}, None),
        ({}, {"WURK_MAXMEM_MB": "300", "SIDEKIQ_MAXMEM_MB": "400"}, 300),
        ({}, {"SIDEKIQ_MAXMEM_MB": "400"}, 400),
        ({"MAXMEM_MB": 200}, {"WURK_MAXMEM_MB": "300"}, 200),
        ({"MAXMEM_MB": 0}, {"WURK_MAXMEM_MB": "300"}, 0),
        ({}, {"WURK_MAXMEM_MB": "lots"}, None),
        ({}, {"WURK_MAXMEM_MB": "0"}, None),
        ({}, {"WURK_MAXMEM_MB": ""}, None),
    ],
)
def test_the_memory_limit_comes_from_the_settings_or_the_environment(
    wurk: dict[str, Any],
    environment: dict[str, str],
    limit: float | None,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.WURK = {"REDIS": "redis://127.0.0.1:1/0", **wurk}
    for name in ("WURK_MAXMEM_MB", "SIDEKIQ_MAXMEM_MB"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    assert conf.load().options.maxmem_mb == limit


@pytest.mark.parametrize("count", ["2", "auto"])
def test_reload_and_several_processes_do_not_go_together(count: str, started: Started) -> None:
    with pytest.raises(CommandError, match="--reload is for development"):
        call_command("wurk", "--reload", "-p", count)


# --- in processes of their own ----------------------------------------------------------------------------------------


def test_no_redis_at_the_start_is_one_message_and_code_one(stage: Fleets) -> None:
    worker = stage.worker(flags=("-p", "3"), url="redis://127.0.0.1:1/0")

    assert worker.wait() == 1
    assert worker.output.count("cannot be used") == 1
    assert "Traceback" not in worker.output


def test_the_local_server_is_kept_by_the_parent_and_outlives_its_children(stage: Fleets) -> None:
    environment = {**stage.environment(), "CRASH_REDIS": "embedded"}
    worker = WorkerProcess(environment, stage.directory / "embedded.log", flags=("-p", "2", "-v", "1"))
    stage._processes.append(worker)
    server = eventually(lambda: _server_of(stage), 20, lambda: worker.output)
    eventually(lambda: worker.output.count("takes jobs from") == 2, 20, lambda: worker.output)
    assert server in children_of(worker.pid)

    for _ in range(2):
        children = [pid for pid in children_of(worker.pid) if pid != server]
        worker.send(signal.SIGUSR1)
        eventually(lambda gone=children: not set(gone) & set(children_of(worker.pid)), 20, lambda: worker.output)
    assert server in children_of(worker.pid), "the same server, still the parent's"

    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not is_there(server), "it ends with its owner"


def _server_of(stage: Fleets) -> int | None:
    path = stage.directory / ".wurk" / "server.pid"
    return int(path.read_text()) if path.exists() else None
