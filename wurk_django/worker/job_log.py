"""Log lines of a worker: "start", "done" and "fail" for each job, and how every line looks.

Arguments are not logged unless `LOG_ARGUMENTS` says so. Text lines escape control characters, so that nothing in a
payload can forge a line; JSON lines are one object each (docs/spec/core.md §8.8, docs/spec/safety.md S-48, S-49).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from textwrap import indent
from typing import Any, Literal

from .. import wire
from ..config import Options
from ..jobs import running
from ..wire import Payload
from . import identity

log = logging.getLogger("wurk.job")

MAX_ARGUMENTS = 1024  # characters of arguments in a log line
SECRET = re.compile(r"passw|secret|token|api[-_ ]?key|authorization|credential", re.IGNORECASE)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LEVELS = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "fatal": 50}
_COLOURS = {"DEBUG": "36", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}


class JobLog:
    """Writes the lines of the jobs of a process. Shared by its threads."""

    def __init__(self, options: Options) -> None:
        self._skip = options.skip_default_job_logging
        self._arguments = options.log_arguments

    def level(self, payload: Payload) -> int | None:
        """The level of this job's lines, or None when nobody would see them."""
        if self._skip:
            return None
        threshold = log.getEffectiveLevel()
        wanted = payload.get("log_level")
        if isinstance(wanted, str) and wanted.lower() in _LEVELS:
            # For this job alone: its lines pass a stricter logger too, so they carry the logger's level then.
            return max(logging.INFO, threshold) if _LEVELS[wanted.lower()] <= logging.INFO else None
        return logging.INFO if threshold <= logging.INFO else None

    def start(self, level: int, payload: Payload) -> None:
        """The job begins."""
        self._write(level, "start", payload, None)

    def end(self, level: int, payload: Payload, elapsed_s: float, error: BaseException | None) -> None:
        """The job is over: "done", or "fail" with an error."""
        self._write(level, "done" if error is None else "fail", payload, elapsed_s)

    def _write(self, level: int, message: str, payload: Payload, elapsed_s: float | None) -> None:
        with suppress(Exception):  # a full disk or a host's broken handler must not decide the fate of a job
            log.log(level, message, extra=self._extra(payload, elapsed_s))

    def _extra(self, payload: Payload, elapsed_s: float | None) -> dict[str, Any]:
        context: dict[str, Any] = {}
        if elapsed_s is not None:
            context["elapsed"] = round(elapsed_s, 3)
        if self._arguments:
            context["args"] = describe_arguments(payload)
        return {"wurk_context": context}


def describe_arguments(payload: Payload) -> str:
    """The arguments for a log line: cut, secrets masked, sealed ones not shown."""
    args = list(payload["args"]) if isinstance(payload.get("args"), list) else []
    if payload.get("encrypt") and args:
        args[-1] = "[encrypted data]"
    shown = {"args": masked(args)}
    if payload.get("kwargs"):
        shown["kwargs"] = masked(payload["kwargs"])
    text = json.dumps(shown if "kwargs" in shown else shown["args"], ensure_ascii=True, default=str)
    return text if len(text) <= MAX_ARGUMENTS else text[:MAX_ARGUMENTS] + "…"


def masked(value: Any) -> Any:
    """A copy with the values of keys that sound like secrets replaced."""
    if isinstance(value, dict):
        return {key: "[FILTERED]" if SECRET.search(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value


def job_context(options: Options) -> dict[str, Any]:
    """What is known about the job of this thread: jid, class and the configured attributes."""
    found = running.get()
    if found is None:
        return {}
    payload, _queue = found
    context: dict[str, Any] = {"class": wire.name_of(payload), "jid": payload["jid"]}
    for name in options.logged_job_attributes:
        if payload.get(name):
            context[name] = payload[name]
    return context


class _Formatter(logging.Formatter):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options = options

    def context(self, record: logging.LogRecord) -> dict[str, Any]:
        return {**job_context(self._options), **getattr(record, "wurk_context", {})}

    def message(self, record: logging.LogRecord) -> str:
        try:
            return record.getMessage()
        except Exception as error:  # a log line of a user that does not format must not end the job
            return f"{record.msg!r} ({error!r})"

    def trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class TextFormatter(_Formatter):
    """`LEVEL time pid= tid= class= jid=: message`; colours on a terminal, no time under a dyno."""

    def __init__(self, options: Options, *, colours: bool, timestamps: bool) -> None:
        super().__init__(options)
        self._colours = colours
        self._timestamps = timestamps

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname
        if self._colours:
            level = f"\x1b[{_COLOURS.get(level, '0')}m{level}\x1b[0m"
        time = f" {_iso(record.created)}" if self._timestamps else ""
        pairs = [("pid", os.getpid()), ("tid", _tid()), *self.context(record).items()]
        text = " ".join(f"{name}={escaped(_joined(value))}" for name, value in pairs)
        line = f"{level}{time} {text}: {escaped(self.message(record))}"
        trace = self.trace(record)
        # Indented, so that no line of an error's text can pass for a line of the log.
        return f"{line}\n{indent(escaped(trace, keep_lines=True), '  ')}" if trace else line


class JsonFormatter(_Formatter):
    """One JSON object a record: ts, pid, tid, lvl, msg, and ctx if there is any."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _iso(record.created),
            "pid": os.getpid(),
            "tid": _tid(),
            "lvl": record.levelname,
            "msg": self.message(record),
        }
        context = self.context(record)
        if context:
            line["ctx"] = context
        if record.exc_info:
            line["exc"] = self.trace(record)
        return json.dumps(line, default=str)


def escaped(text: object, *, keep_lines: bool = False) -> str:
    """Text without control characters, line separators or lone surrogates; each shows as its escape."""
    return _CONTROL.sub(lambda found: _escape(found.group(), keep_lines), str(text))


def configure(options: Options, level: int = logging.INFO) -> None:
    """Give the `wurk` loggers a level and a handler on stderr, unless the host has configured them or the root."""
    logger = logging.getLogger("wurk")
    if logger.handlers or logging.getLogger().handlers:
        return
    if logger.level == logging.NOTSET:
        logger.setLevel(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(options, options.log_format, sys.stderr.isatty()))
    logger.addHandler(handler)


def formatter(options: Options, style: Literal["pretty", "plain", "json"], terminal: bool) -> logging.Formatter:
    """The formatter of a style."""
    if style == "json":
        return JsonFormatter(options)
    return TextFormatter(options, colours=style == "pretty" and terminal, timestamps="DYNO" not in os.environ)


def reopen() -> None:
    """Open the files of all file handlers anew, after a rotation moved them away."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if isinstance(handler, logging.FileHandler):
            with handler.lock or threading.RLock():
                handler.close()  # the next record opens the file again
                handler._closed = False  # type: ignore[attr-defined]  # else a handler with `delay` stays shut


def _escape(character: str, keep_lines: bool) -> str:
    if keep_lines and character in "\n\t":
        return character
    return character.encode("unicode_escape", "backslashreplace").decode()


def _joined(value: Any) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _tid() -> str:
    return identity.thread_id()
