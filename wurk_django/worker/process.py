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

GRACE_S = 5.0  # for what follows the timeout of running jobs at a stop
EXIT_OK = 0
EXIT_FAILED = 1


def run(config: Config, *, burst: bool = False, on_ready: Callable[[Launcher], object] | None = None) -> int:
    """Run jobs until a signal says stop; returns the exit code. Must be called in the main thread.

    `burst`: promote what is due, work until the queues of this process are empty, then stop.
    Raises ConfigurationError when the configuration or the server cannot work.
    """
    check(config)
    signals = SignalLoop()
    signals.trap()
    tell_grace(config.options.timeout)
    watchdog = systemd.watchdog(config.report)

    def ready(launcher: Launcher) -> None:
        if watchdog is not None:
            watchdog.start()
        systemd.notify("READY=1")
        if on_ready is not None:
            on_ready(launcher)

    try:
        work(config, signals, burst=burst, on_ready=ready, on_stop=lambda: systemd.notify("STOPPING=1"))
    finally:
        if watchdog is not None:
            watchdog.stop()
    log.info("bye")
    return EXIT_OK


def check(config: Config) -> None:
    """What must hold before this process works. Raises ConfigurationError."""
    boot.check_server(config)
    try:
        taken = processes.is_alive(config.redis, identity.identity())
    except (RedisUnavailable, RedisRefused) as error:
        raise ConfigurationError(f"Redis at {config.redis_options.describe()} cannot be used: {error}") from error
    if taken:  # it would share our private lists
        raise ConfigurationError(
            f"a process named {identity.identity()} is alive already (a cloned machine?); start this one again"
        )


def work(
    config: Config,
    signals: SignalLoop,
    *,
    burst: bool = False,
    quiet: bool = False,
    on_ready: Callable[[Launcher], object],
    on_stop: Callable[[], object] = lambda: None,
) -> None:
    """One worker from its start to its end, alone or in a fleet. `signals` are trapped already."""
    config.freeze()
    enable_crash_dump()
    launcher = Launcher(config, on_signal=signals.send)
    _prune(config)
    if burst:
        launcher.scheduler.enqueue_due()
    launcher.start(quiet=quiet)
    log.info(
        "wurk %s takes jobs from %s with %d threads, Redis at %s",
        VERSION, ", ".join(config.queue_names()), config.total_concurrency, config.redis_options.describe(),
    )  # fmt: skip
    try:
        on_ready(launcher)
        signals.serve(launcher, until=(lambda: _is_drained(config, launcher)) if burst else None)
    finally:
        on_stop()
        launcher.stop()


def tell_grace(timeout_s: float) -> None:
    """Say how long a stop may take: whoever kills sooner, as `docker stop` does after 10 s, leaves jobs unfinished."""
    log.info("a stop takes up to %g s; whoever starts and stops this process should wait so long", timeout_s + GRACE_S)


def _is_drained(config: Config, launcher: Launcher) -> bool:
    """Nothing is queued, claimed or running. Redis knows of a claim before this process has read its answer."""
    lanes = [lane for index, capsule in enumerate(config.capsules.values()) for lane in Lanes(capsule, index).all()]
    return launcher.idle and not queues.unfinished(config.redis, lanes) and launcher.idle


def _prune(config: Config) -> None:
    try:
        processes.prune(config.redis)
    except (RedisUnavailable, RedisRefused) as error:
        log.info("the process set was not tidied up: %s", error)  # another start will do it
