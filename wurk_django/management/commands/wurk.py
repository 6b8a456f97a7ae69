"""`manage.py wurk`: run the worker."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload
from django.utils.module_loading import import_string

from wurk_django import conf
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError, WurkError
from wurk_django.worker import boot, job_log, process
from wurk_django.worker.launcher import Launcher


class Command(BaseCommand):
    """Runs jobs until a signal says stop. Exit code 0 after an orderly stop, 1 when it could not start."""

    help = "Run background jobs."
    requires_system_checks = ()  # the worker needs neither database nor admin; its own settings are checked below

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-q", "--queue", action="append", metavar="NAME[,WEIGHT]", help="a queue to serve; repeat for more"
        )
        parser.add_argument("-c", "--concurrency", type=_at_least_one, metavar="N", help="threads")
        parser.add_argument("-p", "--processes", type=_at_least_one, metavar="N", help="worker processes")
        parser.add_argument("-t", "--timeout", type=_at_least_one, metavar="SECONDS", help="for running jobs at a stop")
        parser.add_argument("-e", "--environment", metavar="NAME", help="name of the environment, for display")
        parser.add_argument("--burst", action="store_true", help="work until the queues are empty, then exit")
        parser.add_argument("--reload", action="store_true", help="restart when code changes (development)")
        parser.add_argument("--demo", action="store_true", help="run the project's demo (WURK['DEMO'])")
        parser.add_argument("--once", action="store_true", help="with --demo: end when the demo's workload is done")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            code = self._run(options)
        except WurkError as error:
            raise CommandError(str(error), returncode=process.EXIT_FAILED) from error
        if code:
            sys.exit(code)

    def _run(self, options: dict[str, Any]) -> int:
        if options["once"] and not options["demo"]:
            raise ConfigurationError("--once says when a demo ends; it goes with --demo")
        if options["demo"]:
            return self._demo(options)
        config = self._config(options)
        job_log.configure(config.options, _log_level(options["verbosity"]))
        if options["reload"]:
            autoreload.run_with_reloader(lambda: _run_reloadable(config))
            return process.EXIT_OK
        return process.run(config, burst=options["burst"])

    def _config(self, options: dict[str, Any]) -> Config:
        given = {
            "QUEUES": options["queue"],
            "CONCURRENCY": options["concurrency"],
            "PROCESSES": options["processes"],
            "TIMEOUT": options["timeout"],
            "ENVIRONMENT": options["environment"],
        }
        processes = options["processes"] or conf.read().get("PROCESSES", 1)
        if processes != 1:
            raise ConfigurationError(
                f"this version runs one process, not {processes}; start `manage.py wurk` once for each and let your"
                " process manager keep them alive"
            )
        return conf.load(given)

    def _demo(self, options: dict[str, Any]) -> int:
        path = conf.read().get("DEMO")
        if not path:
            raise ConfigurationError("this project has no demo; WURK['DEMO'] names a function that runs one")
        try:
            run = import_string(path)
        except ImportError as error:
            raise ConfigurationError(f"WURK['DEMO']: {path!r} cannot be imported: {error}") from error
        code: int = run(once=options["once"])
        return code


def _run_reloadable(config: Config) -> None:
    """Work until the reloader ends this process; then running jobs go back to their queue."""
    boot.check_server(config)
    launcher = Launcher(config)
    atexit.register(launcher.stop)
    launcher.start()
    threading.Event().wait()  # the reloader takes the end of this thread for the end of the program


def _log_level(verbosity: int) -> int:
    """-v 0: warnings, -v 1: a line for each start and end of a job, -v 2: everything."""
    if verbosity > 1 or os.environ.get("DEBUG_INVOCATION") == "1":
        return logging.DEBUG
    return logging.INFO if verbosity == 1 else logging.WARNING


def _at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more, got {number}")
    return number
