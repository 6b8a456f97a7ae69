"""`manage.py wurk`: run the worker."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from argparse import SUPPRESS, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload
from django.utils.module_loading import import_string

from wurk_django import commands, conf
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError, WurkError
from wurk_django.worker import boot, fleet, job_log, process
from wurk_django.worker.launcher import Launcher

log = logging.getLogger("wurk")


class Command(BaseCommand):
    """Runs jobs until a signal says stop. Exit code 0 after an orderly stop, 1 when it could not start."""

    help = "Run background jobs."
    requires_system_checks = ()  # the worker needs neither database nor admin; its own settings are checked below

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-q", "--queue", action="append", metavar="NAME[,WEIGHT]", help="a queue to serve; repeat for more"
        )
        parser.add_argument("-c", "--concurrency", type=_at_least_one, metavar="N", help="threads")
        parser.add_argument("-p", "--processes", type=_processes, metavar="N", help="worker processes, or auto")
        parser.add_argument("-t", "--timeout", type=_at_least_one, metavar="SECONDS", help="for running jobs at a stop")
        parser.add_argument("-e", "--environment", metavar="NAME", help="name of the environment, for display")
        parser.add_argument("--burst", action="store_true", help="work until the queues are empty, then exit")
        parser.add_argument("--reload", action="store_true", help="restart when code changes (development)")
        parser.add_argument("--demo", action="store_true", help="run the project's demo (WURK['DEMO'])")
        parser.add_argument("--once", action="store_true", help="with --demo: end when the demo's workload is done")
        words = parser.add_subparsers(dest="subcommand", metavar="COMMAND", title="to look at and steer a fleet")
        for name, subcommand in commands.ALL.items():
            inner = words.add_parser(name, help=subcommand.help, description=subcommand.help)
            subcommand.add_arguments(inner)
            for option in ("--settings", "--pythonpath"):  # read by manage.py, wherever they stand
                inner.add_argument(option, default=SUPPRESS, help=SUPPRESS)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            code = self._run_subcommand(options) if options["subcommand"] else self._run(options)
        except WurkError as error:
            raise CommandError(str(error), returncode=process.EXIT_FAILED) from error
        if code:
            sys.exit(code)

    def _run_subcommand(self, options: dict[str, Any]) -> int:
        config = conf.load()
        try:
            return commands.ALL[options["subcommand"]].run(config, options, self.stdout.write)
        finally:
            config.reset_redis_pools()

    def _run(self, options: dict[str, Any]) -> int:
        if options["once"] and not options["demo"]:
            raise ConfigurationError("--once says when a demo ends; it goes with --demo")
        if options["demo"]:
            return self._demo(options)
        config = self._config(options)
        job_log.configure(config.options, _log_level(options["verbosity"]))
        if options["reload"]:
            if (options["processes"] or 1) != 1:
                raise ConfigurationError("--reload is for development and runs one process; leave -p away")
            autoreload.run_with_reloader(lambda: _run_reloadable(config))
            return process.EXIT_OK
        slots = conf.load_slots(self._given(options))
        if slots and any(os.environ.get(name) for name in fleet.VARIABLES):
            log.warning("WURK['TOPOLOGY'] says how many processes there are; the environment is not asked")
        count = len(slots) or fleet.process_count(options["processes"] or conf.read().get("PROCESSES"))
        if count > 1:
            return fleet.run(config, count, slots=slots, burst=options["burst"])
        return process.run(slots[0] if slots else config, burst=options["burst"])

    def _config(self, options: dict[str, Any]) -> Config:
        return conf.load(self._given(options))

    def _given(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "QUEUES": options["queue"],
            "CONCURRENCY": options["concurrency"],
            "PROCESSES": options["processes"],
            "TIMEOUT": options["timeout"],
            "ENVIRONMENT": options["environment"],
        }

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


def _processes(text: str) -> int | str:
    return text if text == "auto" else _at_least_one(text)


def _at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise ArgumentTypeError(f"must be 1 or more, got {number}")
    return number
