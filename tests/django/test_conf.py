"""Settings become a Config: every key arrives, wrong ones are told with a way out, and the order of sources holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.django.conftest import Configure
from wurk_django import conf, config, embedded
from wurk_django.buffer import PushBuffer
from wurk_django.config import Config, Options, log_error
from wurk_django.errors import ConfigurationError


class Passing:
    """A middleware that changes nothing."""

    def call(self, *arguments: Any) -> Any:
        return arguments[-1]()


def on_error(error: BaseException, context: dict[str, Any]) -> None:
    """An error handler."""


def on_death(payload: dict[str, Any], error: BaseException) -> None:
    """A death handler."""


def clean(lines: list[str]) -> list[str]:
    """A backtrace cleaner."""
    return lines[:1]


HERE = __name__

#: For every setting a value that is not its default, and where it must arrive.
ARRIVALS: dict[str, tuple[Any, Callable[[Config], Any], Any]] = {
    "CONCURRENCY": (9, lambda c: c.capsules["default"].concurrency, 9),
    "TIMEOUT": (0.5, lambda c: c.options.timeout, 0.5),
    "POLL_INTERVAL": (0.1, lambda c: c.options.poll_interval, 0.1),
    "POLL_INTERVAL_AVERAGE": (3, lambda c: c.options.poll_interval_average, 3),
    "SCHEDULER_INITIAL_WAIT": (0, lambda c: c.options.scheduler_initial_wait, 0),
    "HEARTBEAT_INTERVAL": (0.5, lambda c: c.options.heartbeat_interval, 0.5),
    "HEARTBEAT_TTL": (33, lambda c: c.options.heartbeat_ttl, 33),
    "REAPER_INTERVAL": (1.5, lambda c: c.options.reaper_interval, 1.5),
    "REAPER_GRACE": (0, lambda c: c.options.reaper_grace, 0),
    "REAPER_WATCH_INTERVAL": (2, lambda c: c.options.reaper_watch_interval, 2),
    "REAPER_FULL_INTERVAL": (600, lambda c: c.options.reaper_full_interval, 600),
    "POISON_LIMIT": (5, lambda c: c.options.poison_limit, 5),
    "FETCH_BLOCK": (0.2, lambda c: c.options.fetch_block, 0.2),
    "MAX_RETRIES": (0, lambda c: c.options.max_retries, 0),
    "DEAD_MAX_JOBS": (7, lambda c: c.options.dead_max_jobs, 7),
    "DEAD_TIMEOUT_IN_SECONDS": (60, lambda c: c.options.dead_timeout_in_seconds, 60),
    "MAX_JOB_BYTES": (100, lambda c: c.options.max_job_bytes, 100),
    "ON_COMPLEX_ARGUMENTS": ("warn", lambda c: c.options.on_complex_arguments, "warn"),
    "WIRE_TIMESTAMPS": ("seconds", lambda c: c.options.wire_timestamps, "seconds"),
    "ENQUEUE_ON_COMMIT": (False, lambda c: c.options.enqueue_on_commit, False),
    "REDIS_IDLE_TIMEOUT": (60, lambda c: c.options.redis_idle_timeout, 60),
    "RELIABLE_PUSH": (True, lambda c: isinstance(c.outage, PushBuffer), True),
    "RELIABLE_PUSH_BUFFER": (7, lambda c: c.options.reliable_push_buffer, 7),
    "RELIABLE_PUSH_OVERFLOW": ("drop_oldest", lambda c: c.options.reliable_push_overflow, "drop_oldest"),
    "RELIABLE_PUSH_DRAIN_INTERVAL": (0.5, lambda c: c.options.reliable_push_drain_interval, 0.5),
    "PUSH_WAIT_REPLICAS": (2, lambda c: c.options.push_wait_replicas, 2),
    "PUSH_WAIT_TIMEOUT": (0.2, lambda c: c.options.push_wait_timeout, 0.2),
    "DEFAULT_JOB_OPTIONS": (
        {"retry": 5},
        lambda c: dict(c.options.default_job_options),
        {"retry": 5, "queue": "default"},
    ),
    "LABELS": (["blue"], lambda c: c.options.labels, ("blue",)),
    "TAG": ("shop", lambda c: c.options.tag, "shop"),
    "ENVIRONMENT": ("staging", lambda c: c.options.environment, "staging"),
    "LOGGED_JOB_ATTRIBUTES": (["tags"], lambda c: c.options.logged_job_attributes, ("tags",)),
    "SKIP_DEFAULT_JOB_LOGGING": (True, lambda c: c.options.skip_default_job_logging, True),
    "LOG_ARGUMENTS": (True, lambda c: c.options.log_arguments, True),
    "LOG_FORMAT": ("json", lambda c: c.options.log_format, "json"),
    "HUNG_TIMEOUT": (False, lambda c: c.options.hung_timeout, False),
    "MAXMEM_MB": (300, lambda c: c.options.maxmem_mb, 300),
    "LEADER_KEY": ("python-leader", lambda c: c.options.leader_key, "python-leader"),
    "LEADER_TTL": (2.5, lambda c: c.options.leader_ttl, 2.5),
    "LEADER_INTERVAL": (0.5, lambda c: c.options.leader_interval, 0.5),
    "HEALTH_CHECK": ("127.0.0.1:9000", lambda c: c.options.health_check, "127.0.0.1:9000"),
    "HEALTH_METRICS": (False, lambda c: c.options.health_metrics, False),
    "READY_WINDOW": (12, lambda c: c.options.ready_window, 12),
    "MIN_READY": (3, lambda c: c.options.min_ready, 3),
    "WEDGED_AFTER": (7, lambda c: c.options.wedged_after, 7),
    "REDIS": ({"URL": "redis://example.com:1/2"}, lambda c: c.redis_options.describe(), "redis://example.com:1/2"),
    "QUEUES": (["a,2", "b"], lambda c: c.capsules["default"].queues.weights, {"a": 2, "b": 0}),
    "CAPSULES": ({"slow": {"QUEUES": ["z"]}}, lambda c: list(c.capsules), ["default", "slow"]),
    "CLIENT_MIDDLEWARE": ([f"{HERE}.Passing"], lambda c: Passing in c.client_middleware, True),
    "SERVER_MIDDLEWARE": ([f"{HERE}.Passing"], lambda c: Passing in c.server_middleware, True),
    "ERROR_HANDLERS": ([f"{HERE}.on_error"], lambda c: c.error_handlers, [log_error, on_error]),
    "DEATH_HANDLERS": ([f"{HERE}.on_death"], lambda c: c.death_handlers, [on_death]),
    "RECOVERY_CALLBACKS": ([f"{HERE}.on_death"], lambda c: c.recovery_callbacks, [on_death]),
    "POISON_CALLBACKS": ([f"{HERE}.on_death"], lambda c: c.poison_callbacks, [on_death]),
    "BACKTRACE_CLEANER": (f"{HERE}.clean", lambda c: c.backtrace_cleaner, clean),
}
#: Read by the command, not by the Config: tested with it.
OF_THE_COMMAND = {"PROCESSES", "TOPOLOGY", "DEMO"}

WRONG: dict[str, list[Any]] = {
    "CONCURRENCY": [0, -1, 2.5, "5", True],
    "TIMEOUT": [0, -2, "25", float("inf"), float("nan")],
    "POLL_INTERVAL": [0, "1"],
    "POLL_INTERVAL_AVERAGE": [0],
    "SCHEDULER_INITIAL_WAIT": [-1],
    "HEARTBEAT_INTERVAL": [0],
    "HEARTBEAT_TTL": [0, "60"],
    "REAPER_INTERVAL": [0],
    "REAPER_GRACE": [-0.5],
    "REAPER_WATCH_INTERVAL": [0],
    "REAPER_FULL_INTERVAL": [0, "3600"],
    "POISON_LIMIT": [0, 1.5],
    "HUNG_TIMEOUT": [0, 19, True, "60"],
    "MAXMEM_MB": [-1, "300"],
    "FETCH_BLOCK": [0],
    "LEADER_KEY": ["", 5],
    "LEADER_TTL": [0, "30"],
    "LEADER_INTERVAL": [0],
    "HEALTH_CHECK": [-1, 70000, "", "host:", "host:x", 1.5, []],
    "HEALTH_METRICS": ["yes"],
    "READY_WINDOW": [0],
    "MIN_READY": [0, 1.5],
    "WEDGED_AFTER": [0, 1.9, "30"],
    "MAX_RETRIES": [-1, 1.5, True],
    "DEAD_MAX_JOBS": [0],
    "DEAD_TIMEOUT_IN_SECONDS": [0],
    "MAX_JOB_BYTES": [0, "1MB"],
    "ON_COMPLEX_ARGUMENTS": ["ignore", True],
    "WIRE_TIMESTAMPS": ["ms"],
    "ENQUEUE_ON_COMMIT": ["yes", 1],
    "REDIS_IDLE_TIMEOUT": [0],
    "RELIABLE_PUSH": [1, "on"],
    "RELIABLE_PUSH_BUFFER": [0, 1.5],
    "RELIABLE_PUSH_OVERFLOW": ["block"],
    "RELIABLE_PUSH_DRAIN_INTERVAL": [-1],
    "PUSH_WAIT_REPLICAS": [-1, 1.5, True],
    "PUSH_WAIT_TIMEOUT": [0, -1, 2.5, "1"],
    "DEFAULT_JOB_OPTIONS": [["retry"], {1: 2}],
    "LABELS": ["blue", [1]],
    "TAG": [5],
    "ENVIRONMENT": [5],
    "LOGGED_JOB_ATTRIBUTES": ["tags"],
    "SKIP_DEFAULT_JOB_LOGGING": [0],
    "LOG_ARGUMENTS": ["no"],
    "LOG_FORMAT": ["xml"],
    "REDIS": [
        "localhost", "http://localhost", "", 5, {}, {"URL": "http://x"}, {"URL": 5}, {"HOST": "x"},
        {"CACHE": "nowhere"}, {"CACHE": []}, {"SENTINELS": [["a", 1]]}, {"SENTINELS": [], "MASTER": "m"},
        {"SENTINELS": ["a:1"], "MASTER": "m"}, {"SENTINELS": [["a", 1]], "MASTER": 5},
        {"SENTINELS": [["a", 1]], "MASTER": "m", "URL": "http://x"},
    ],
    "QUEUES": ["default", [], [""], [5], ["a|b"], ["x" * 201], ["new\nline"], [[]]],
    "CAPSULES": [["slow"], {"slow": {"THREADS": 1}}, {"slow": {"CONCURRENCY": 0}}, {"slow": {"QUEUES": []}}, {"s": 5}],
    "PROCESSES": [0, "many", 1.5],
    "TOPOLOGY": [[], {}, ["a"], [{"COUNT": 0}], [{"QUEUES": []}], [{"CONCURRENCY": 0}], [{"PROCESSES": 2}]],
    "CLIENT_MIDDLEWARE": ["a.B", [5]],
    "SERVER_MIDDLEWARE": ["a.B"],
    "ERROR_HANDLERS": ["a.b"],
    "DEATH_HANDLERS": ["a.b"],
    "RECOVERY_CALLBACKS": ["a.b"],
    "POISON_CALLBACKS": [[5]],
    "BACKTRACE_CLEANER": [5],
    "DEMO": [5],
}  # fmt: skip


def test_every_setting_has_its_test() -> None:
    assert set(ARRIVALS) | OF_THE_COMMAND == set(conf.CHECKS)
    assert set(WRONG) == set(conf.CHECKS)


@pytest.mark.parametrize("name", ARRIVALS)
def test_a_setting_arrives_in_the_configuration(name: str, configure: Configure) -> None:
    value, read, expected = ARRIVALS[name]
    assert read(configure()) != expected
    assert read(configure(**{name: value})) == expected


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_an_error_that_names_the_setting_and_the_value(
    name: str, value: Any, configure: Configure
) -> None:
    found = conf.problems({"REDIS": "redis://", name: value})
    assert [problem.check_id for problem in found] == ["wurk_django.E002"]
    assert f"WURK[{name!r}]" in found[0].message
    with pytest.raises(ConfigurationError, match=name):
        configure(**{name: value})


@pytest.mark.oracle("core:F8")
@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("CONCURENCY", "CONCURRENCY"),
        ("concurrency", "CONCURRENCY"),
        ("QUEUE", "QUEUES"),
        ("average_scheduled_poll_interval", "POLL_INTERVAL"),
        ("fetch_poll_interval", "FETCH_BLOCK"),
        ("super_fetch_reaper_interval", "REAPER_INTERVAL"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_one(unknown: str, meant: str) -> None:
    found = conf.problems({"REDIS": "redis://", unknown: 5})
    assert [problem.check_id for problem in found] == ["wurk_django.E001"]
    assert found[0].hint == f"Did you mean {meant!r}?"


def test_an_unknown_key_that_is_near_to_nothing_lists_what_there_is() -> None:
    (found,) = conf.problems({"REDIS": "redis://", "xyzzy": 5})
    assert all(name in found.hint for name in conf.CHECKS)


@pytest.mark.parametrize("value", [5, "redis://", ["REDIS"], None])
def test_a_wurk_that_is_no_dict_is_an_error(value: Any, settings: Any) -> None:
    settings.WURK = value
    (found,) = conf.problems(conf.read())
    assert (found.check_id, "must be a dict" in found.message) == ("wurk_django.E002", True)


@pytest.mark.parametrize("ttl", [10, 19.9])
def test_a_heartbeat_that_lives_shorter_than_two_beats_is_an_error(ttl: float) -> None:
    found = conf.problems({"REDIS": "redis://", "HEARTBEAT_TTL": ttl})
    assert [problem.check_id for problem in found] == ["wurk_django.E004"]


def test_none_counts_as_not_set(configure: Configure) -> None:
    nothing = configure(**{name: None for name in conf.CHECKS if name != "REDIS"})
    assert nothing.options == configure().options


@pytest.mark.oracle("core:F6")
def test_without_settings_there_is_one_capsule_of_five_threads_on_default(configure: Configure) -> None:
    made = configure()
    assert {name: (c.concurrency, c.queues.names) for name, c in made.capsules.items()} == {
        "default": (5, ("default",))
    }
    assert made.options.timeout == 25


@pytest.mark.oracle("core:F4")
def test_weights_make_a_weighted_capsule(configure: Configure) -> None:
    capsule = configure(QUEUES=["very_often,2", "seldom,1"], CONCURRENCY=50).capsules["default"]
    assert capsule.concurrency == 50
    assert sorted(capsule.queues.expanded) == ["seldom", "very_often", "very_often"]
    assert capsule.queues.mode == "weighted"


@pytest.mark.oracle("core:F5")
def test_a_further_capsule_stands_beside_the_default_one(configure: Configure) -> None:
    made = configure(CAPSULES={"binary": {"QUEUES": ["sirius", "sirius_b"], "CONCURRENCY": 2}})
    assert made.capsules["binary"].concurrency == 2
    assert made.capsules["binary"].queues.names == ("sirius", "sirius_b")
    assert made.capsules["default"].queues.names == ("default",)


@pytest.mark.oracle("core:F2")
def test_the_command_line_comes_before_the_settings_and_these_before_the_defaults(configure: Configure) -> None:
    assert configure().options.concurrency == Options().concurrency
    assert configure(CONCURRENCY=9).options.concurrency == 9
    assert conf.load({"CONCURRENCY": 60}).options.concurrency == 60
    assert conf.load({"CONCURRENCY": None}).options.concurrency == 9


@pytest.mark.oracle("core:F7")
def test_the_command_lines_queues_replace_those_of_the_settings(configure: Configure) -> None:
    configure(QUEUES=["critical"], CONCURRENCY=3)
    capsule = conf.load({"QUEUES": ["often,7", "seldom,3"], "CONCURRENCY": 100}).capsules["default"]
    assert (capsule.concurrency, capsule.queues.weights) == (100, {"often": 7, "seldom": 3})


def test_the_command_line_is_checked_like_the_settings(configure: Configure) -> None:
    configure()
    with pytest.raises(ConfigurationError, match="QUEUES"):
        conf.load({"QUEUES": ["a|b"]})


@pytest.mark.parametrize(
    "name", ["CLIENT_MIDDLEWARE", "SERVER_MIDDLEWARE", "ERROR_HANDLERS", "DEATH_HANDLERS", "BACKTRACE_CLEANER"]
)
def test_a_path_that_cannot_be_imported_is_told_with_its_setting(name: str, configure: Configure) -> None:
    path = "nowhere.Thing"
    with pytest.raises(ConfigurationError, match=rf"{name}.*nowhere\.Thing"):
        configure(**{name: path if name == "BACKTRACE_CLEANER" else [path]})


def test_an_error_handler_of_the_settings_is_told_beside_the_log(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(f"{HERE}.on_error", lambda error, context: told.append((str(error), context)))
    configure(ERROR_HANDLERS=[f"{HERE}.on_error"]).report(ValueError("x"), "somewhere")
    assert told == [("x", {"context": "somewhere"})]


def test_use_tz_decides_whether_naive_datetimes_are_taken(configure: Configure, settings: Any) -> None:
    settings.USE_TZ = False
    assert configure().options.naive_datetimes
    settings.USE_TZ = True
    assert not configure().options.naive_datetimes


def test_the_tag_is_the_projects_directory(configure: Configure, settings: Any) -> None:
    settings.BASE_DIR = Path("/somewhere/shop")
    assert configure().options.tag == "shop"


def test_the_default_configuration_is_that_of_the_settings_and_made_once(configure: Configure) -> None:
    made = configure(CONCURRENCY=4)
    assert config.default() is made
    assert made.options.concurrency == 4


def test_reading_the_settings_starts_no_server(settings: Any, tmp_path: Path) -> None:
    settings.WURK, settings.BASE_DIR = {"REDIS": "embedded"}, tmp_path
    conf.load()
    assert not list(tmp_path.iterdir())
    embedded.stop(tmp_path)
