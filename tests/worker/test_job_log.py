"""Log lines of jobs: what they say, what they never say, and that nothing in a payload can forge one."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.rig import QUICK, Recorder, Rig, enqueue, payload, wait_for
from wurk_django.config import Options, log_error
from wurk_django.jobs import running
from wurk_django.worker import job_log
from wurk_django.worker.job_log import JobLog, configure, describe_arguments, escaped, formatter

FORGED = "x\r\nINFO 2026-01-01T00:00:00.000Z pid=1 tid=a: done\u2028\x1b[31mred\x00\x85\x7f"


class Written:
    """What the worker's loggers wrote."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture
def written() -> Iterator[Any]:
    """Attach a formatter of a style; gives what was written with it."""
    logger = logging.getLogger("wurk")
    level, handlers = logger.level, list(logger.handlers)

    def attach(options: Options = QUICK, style: Any = "plain", level: int = logging.INFO) -> Written:
        found = Written()
        handler = logging.StreamHandler(found.stream)
        handler.setFormatter(formatter(options, style, terminal=True))
        logger.addHandler(handler)
        logger.setLevel(level)
        return found

    yield attach
    logger.setLevel(level)
    logger.handlers[:] = handlers


def test_a_job_writes_start_and_done_with_its_identity(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    log = written()
    jobs.job()
    manager = rig.manager()
    enqueue(redis, "default", payload(jid="one", bid="b7", tags=["a", "b"]))
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    start, done = log.lines
    pattern = r"INFO \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z pid=\d+ tid=\w+ class=work jid=one bid=b7 tags=a,b"
    assert re.fullmatch(pattern + ": start", start)
    assert re.fullmatch(pattern + r" elapsed=\d+\.\d+: done", done)


def test_a_failed_job_writes_fail(redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any) -> None:
    log = written()
    jobs.failing_job(ValueError("boom"))
    rig.manager()
    enqueue(redis, "default", payload(jid="one"))
    wait_for(lambda: redis.zcard("retry"))

    assert [line.rpartition(": ")[2] for line in log.lines] == ["start", "fail"]


def test_what_a_job_logs_carries_its_identity_too(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    log = written(replace(QUICK, skip_default_job_logging=True))
    jobs.job(act=lambda *_: logging.getLogger("wurk.shop").info("sold %d", 3))
    rig.manager(rig.config(skip_default_job_logging=True))
    enqueue(redis, "default", payload(jid="one", wrapped="Real"))
    wait_for(lambda: log.lines)

    [line] = log.lines
    assert line.endswith("class=Real jid=one: sold 3")


@pytest.mark.oracle("safety:S-48")
def test_arguments_are_not_logged_unless_that_is_wanted(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    plain, js = written(level=logging.DEBUG), written(style="json")
    jobs.failing_job(ValueError("boom"))
    config = rig.config()
    config.error_handlers.append(log_error)
    manager = rig.manager(config)
    enqueue(redis, "default", payload("work", "canary-4711", {"password": "canary-4712"}, kwargs={"k": "canary-4713"}))
    wait_for(lambda: redis.zcard("retry"))
    wait_for(lambda: manager.idle)

    assert "fail" in plain.text
    assert "canary" not in plain.text + js.text


@pytest.mark.oracle("safety:S-48")
def test_wanted_arguments_are_cut_and_their_secrets_masked(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    options = {"log_arguments": True}
    log = written(replace(QUICK, **options))
    jobs.job(act=lambda *_: None)
    config = rig.config(**options)
    manager = rig.manager(config)
    enqueue(redis, "default", payload("work", 1, {"API-Key": "hush", "n": [{"Password2": "hush"}]}))
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert '[1, {"API-Key": "[FILTERED]", "n": [{"Password2": "[FILTERED]"}]}]' in log.text
    assert "hush" not in log.text


@pytest.mark.oracle("safety:S-48")
def test_described_arguments_are_short_and_show_nothing_sealed() -> None:
    sealed = {"args": [1, {"iv": "…", "ct": "canary"}], "encrypt": True}
    assert describe_arguments(sealed) == '[1, "[encrypted data]"]'
    assert describe_arguments({"args": []}) == "[]"
    assert (
        describe_arguments({"args": [1], "kwargs": {"token": "t"}})
        == '{"args": [1], "kwargs": {"token": "[FILTERED]"}}'
    )
    assert len(describe_arguments({"args": ["x" * 5000]})) == job_log.MAX_ARGUMENTS + 1
    for name in ("passwd", "user_password", "SECRET", "access_token", "apikey", "Authorization", "credentials"):
        assert "hush" not in describe_arguments({"args": [{name: "hush"}]})


@pytest.mark.oracle("safety:S-49")
def test_nothing_in_a_payload_forges_a_line_of_text(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    options = {"log_arguments": True}
    log = written(replace(QUICK, **options), "pretty")
    jobs.job(FORGED, act=lambda *_: logging.getLogger("wurk").info("got %s", FORGED))
    manager = rig.manager(rig.config(**options))
    enqueue(redis, "default", payload(FORGED, FORGED, jid=FORGED, bid=FORGED, tags=[FORGED], kwargs={}))
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert len(log.lines) == 3
    assert all(line.startswith("\x1b[32mINFO\x1b[0m ") for line in log.lines)
    assert not re.search("[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028]", log.text)
    assert log.text.count("\x1b") == 6, "only our own colours"
    assert "x\\r\\nINFO" in log.text


@pytest.mark.oracle("safety:S-49")
def test_an_error_message_in_a_traceback_forges_no_line(written: Any) -> None:
    log = written()
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("wurk").exception("told")

    first, *rest = log.lines
    assert first.endswith(": told")
    assert all(line.startswith(" ") for line in rest), "what follows can be told from a line of its own"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", log.text)


@pytest.mark.oracle("safety:S-49")
def test_a_record_is_one_line_of_json(redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any) -> None:
    log = written(style="json")

    def fail(*_: object) -> None:
        try:
            raise ValueError(FORGED)
        except ValueError:
            logging.getLogger("wurk").exception("told %s", FORGED)

    jobs.job(FORGED, act=fail)
    manager = rig.manager()
    enqueue(redis, "default", payload(FORGED, jid=FORGED, tags=[FORGED]))
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    records = [json.loads(line) for line in log.text.split("\n")[:-1]]
    assert [record["msg"] for record in records] == ["start", f"told {FORGED}", "done"]
    assert all(record["ctx"]["jid"] == FORGED and record["ctx"]["tags"] == [FORGED] for record in records)
    assert {"ts", "pid", "tid", "lvl", "msg", "ctx"} <= records[0].keys()
    assert "elapsed" in records[2]["ctx"]
    assert FORGED in records[1]["exc"]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", log.text)


@given(st.text(st.characters()))
def test_escaped_text_can_be_written_and_stays_on_its_line(text: str) -> None:
    shown = escaped(text)

    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", shown)
    if text.isascii() and text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("log_level", "threshold", "lines"),
    [(None, "INFO", 2), (None, "WARNING", 0), ("debug", "WARNING", 2), ("info", "WARNING", 2), ("warn", "INFO", 0),
     ("ERROR", "INFO", 0), (7, "INFO", 2), ("loud", "INFO", 2)],
)  # fmt: skip
def test_a_job_may_have_a_level_of_its_own(
    log_level: Any, threshold: str, lines: int, redis: redis_py.Redis, rig: Rig, jobs: Recorder, written: Any
) -> None:
    log = written(level=logging.getLevelName(threshold))
    jobs.job()
    manager = rig.manager()
    enqueue(redis, "default", payload(log_level=log_level))
    wait_for(lambda: jobs.calls)
    wait_for(lambda: manager.idle)

    assert len(log.lines) == lines


def test_job_lines_can_be_switched_off() -> None:
    assert JobLog(replace(QUICK, skip_default_job_logging=True)).level({"jid": "a"}) is None


def test_under_a_dyno_the_platform_writes_the_time(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNO", "worker.1")
    log = written()
    logging.getLogger("wurk").info("hello")

    assert re.fullmatch(r"INFO pid=\d+ tid=\w+: hello", log.lines[0])


@pytest.mark.parametrize("style", ["plain", "json"])
def test_a_message_that_does_not_format_is_written_all_the_same(style: Any) -> None:
    record = logging.LogRecord("wurk", logging.INFO, __file__, 1, "%d apples", ("no",), None)

    assert "%d apples" in formatter(QUICK, style, terminal=False).format(record)


def test_attributes_of_the_payload_can_be_chosen_for_the_lines(written: Any) -> None:
    log = written(replace(QUICK, logged_job_attributes=("locale",)))
    token = running.set(({"class": "work", "jid": "a", "locale": "de", "bid": "b"}, "default"))
    try:
        logging.getLogger("wurk").info("hello")
    finally:
        running.reset(token)

    assert "jid=a locale=de: hello" in log.text
    assert "bid" not in log.text


def test_the_loggers_of_the_host_are_left_alone(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("wurk")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    configure(QUICK)
    [handler] = logger.handlers
    configure(QUICK)
    assert logger.handlers == [handler], "once"

    logger.handlers.clear()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    configure(QUICK)
    assert logger.handlers == []


def test_rotated_log_files_are_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    handler = logging.FileHandler(path, delay=True)
    logger = logging.getLogger("wurk.rotated")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        logger.info("before")
        path.rename(tmp_path / "worker.log.1")
        logger.info("still the old file")
        job_log.reopen()
        logger.info("after")
        assert path.read_text() == "after\n"
        assert (tmp_path / "worker.log.1").read_text() == "before\nstill the old file\n"
    finally:
        logger.removeHandler(handler)
        handler.close()
