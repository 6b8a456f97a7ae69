"""One worker process from the first check to its exit code."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..config import Config
from ..errors import ConfigurationError, RedisRefused, RedisUnavailable
from ..storage import processes, queues
from ..version import VERSION
from . import boot, identity, systemd
from .lanes import Lanes
from .launcher import Launcher
from .signals import SignalLoop, enable_crash_dump

log = logging.getLogger("wurk")

EXIT_OK = 0
EXIT_FAILED = 1


def run(config: Config, *, burst: bool = False, on_ready: Callable[[Launcher], object] | None = None) -> int:
    """Run jobs until a signal says stop; returns the exit code. Must be called in the main thread.

    `burst`: promote what is due, work until the queues of this process are empty, then stop.
    Raises ConfigurationError when the configuration or the server cannot work.
    """
    config.freeze()
    boot.check_server(config)
    enable_crash_dump()
    signals = SignalLoop()
    launcher = Launcher(config, on_signal=signals.send)
    _refuse_twin(config)
    signals.trap()
    _prune(config)
    if burst:
        launcher.scheduler.enqueue_due()
    launcher.start()
    watchdog = systemd.watchdog(config.report)
    if watchdog is not None:
        watchdog.start()
    systemd.notify("READY=1")
    log.info(
        "wurk %s takes jobs from %s with %d threads, Redis at %s",
        VERSION, ", ".join(config.queue_names()), config.total_concurrency, config.redis_options.describe(),
    )  # fmt: skip
    try:
        if on_ready is not None:
            on_ready(launcher)
        signals.serve(launcher, until=(lambda: _is_drained(config, launcher)) if burst else None)
    finally:
        systemd.notify("STOPPING=1")
        launcher.stop()
        if watchdog is not None:
            watchdog.stop()
    log.info("bye")
    return EXIT_OK


def _is_drained(config: Config, launcher: Launcher) -> bool:
    """Nothing is queued, claimed or running. Redis knows of a claim before this process has read its answer."""
    lanes = [lane for index, capsule in enumerate(config.capsules.values()) for lane in Lanes(capsule, index).all()]
    return launcher.idle and not queues.unfinished(config.redis, lanes) and launcher.idle


def _prune(config: Config) -> None:
    try:
        processes.prune(config.redis)
    except (RedisUnavailable, RedisRefused) as error:
        log.info("the process set was not tidied up: %s", error)  # another start will do it


def _refuse_twin(config: Config) -> None:
    """A cloned machine can carry the same host, pid and nonce: two processes must not share private lists."""
    if processes.is_alive(config.redis, identity.identity()):
        raise ConfigurationError(
            f"a process named {identity.identity()} is alive already (a cloned machine?); start this one again"
        )
