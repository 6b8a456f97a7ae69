"""Tells the fleet that this process lives and what it runs; takes the signals that were sent to it.

docs/spec/core.md §8.5. A beat that fails is told and the next one comes; its counts are written then.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..clock import monotonic
from ..component import Periodic
from ..config import Config
from ..connection import Argument
from ..errors import RedisRefused, RedisUnavailable
from ..storage import processes, stats
from ..version import VERSION
from . import identity
from .busy import Busy, Tally

log = logging.getLogger("wurk")

SLOW_RTT_US = 50_000
RTT_READINGS = 5  # so many slow ones in a row are worth a warning
REMOTE_SIGNALS = frozenset({"TSTP", "TERM", "TTIN"})


class Heartbeat:
    """A Component: beats at once, then every `heartbeat_interval`, until `stop`; goes on while quiet."""

    def __init__(
        self, config: Config, busy: Busy, tally: Tally, on_signal: Callable[[str], object], *, embedded: bool = False
    ) -> None:
        self._config = config
        self._options = config.options
        self._busy = busy
        self._tally = tally
        self._on_signal = on_signal
        self._embedded = embedded
        self._quiet = False
        self._slow: list[int] = []
        self._identity = identity.identity()
        self._started_at = time.time()
        self._info = ""
        self._beat_at = -math.inf
        self._deaths = 0
        self._loop = Periodic("heartbeat", self.beat, lambda: self._options.heartbeat_interval, config.report)

    @property
    def age_s(self) -> float:
        """Time since Redis took a beat; infinite before the first."""
        return monotonic() - self._beat_at

    def start(self) -> None:
        """Beat once before anything is claimed: a list without a living owner would be taken for an orphan's."""
        self.beat()
        self._loop.start()

    def quiet(self) -> None:
        """Say so with the next beat, and beat on."""
        self._quiet = True

    def stop(self) -> None:
        """End the beats, write the last counts and leave the process set."""
        self._loop.stop()
        self._tell_redis(self.flush_stats)
        self._tell_redis(lambda: processes.deregister(self._config.redis, self._identity))

    def beat(self) -> None:
        """One beat."""
        self._tell_redis(self.flush_stats)
        _set_title(self._title())
        try:
            answer = self._write()
        except (RedisUnavailable, RedisRefused) as error:
            self._config.report(error, "heartbeat")
            return
        self._follow(answer)

    def show_alive(self) -> int:
        """Beat at once if the fleet may think this process dead. Returns how often it has thought so.

        Asked before jobs are claimed: a process that stood still must not hold jobs that others take for an orphan's.
        Raises RedisUnavailable or RedisRefused when the beat failed.
        """
        if self.age_s >= self._options.heartbeat_ttl:
            self._follow(self._write())
        return self._deaths

    def _write(self) -> processes.Beat:
        sent_at = monotonic()  # the time to live counts from before the answer
        rtt_us = self._measure_rtt()
        answer = processes.beat(
            self._config.redis,
            self._identity,
            self._fields(rtt_us),
            self._busy.rows(),
            self._options.heartbeat_ttl,
            for_older=self._options.wire_timestamps == "seconds",
        )
        self._beat_at = sent_at
        self._deaths += not answer.known
        return answer

    def _follow(self, answer: processes.Beat) -> None:
        if not answer.known:
            self._config.hooks.fire("heartbeat", self._config.report)
        self._config.hooks.fire("beat", self._config.report)
        if self._options.redis_idle_timeout:
            self._config.redis.close_idle(self._options.redis_idle_timeout)
        for signal in answer.signals:
            self._act_on(signal)

    def flush_stats(self) -> None:
        """Write the counts since the last time; keep them when Redis does not take them."""
        processed, failed = self._tally.take()
        try:
            stats.add(self._config.redis, processed, failed)
        except BaseException:
            self._tally.put_back(processed, failed)
            raise

    def _act_on(self, signal: str) -> None:
        if self._embedded:
            log.info("%s was sent to this embedded worker; its host decides when it stops", signal)
        elif signal in REMOTE_SIGNALS:
            self._on_signal(signal)
        else:
            log.warning("an unknown signal was sent to this process: %r", signal)

    def _fields(self, rtt_us: int) -> Mapping[str, Argument]:
        return {
            "info": self._info or self._make_info(),
            "concurrency": self._config.total_concurrency,
            "busy": len(self._busy),
            "beat": time.time(),
            "rtt_us": rtt_us,
            "quiet": "true" if self._quiet else "false",
            "rss": rss_kb(),
        }

    def _make_info(self) -> str:
        capsules = self._config.capsules
        info: dict[str, Any] = {
            "hostname": identity.host(),
            "started_at": self._started_at,
            "pid": os.getpid(),
            "tag": self._options.tag,
            "concurrency": self._config.total_concurrency,
            "capsules": {
                name: {
                    "concurrency": capsule.concurrency,
                    "mode": capsule.queues.mode,
                    "weights": capsule.queues.weights,
                }
                for name, capsule in capsules.items()
            },
            "queues": self._config.queue_names(),
            "weights": [capsule.queues.weights for capsule in capsules.values()],
            "labels": sorted(self._options.labels),
            "identity": self._identity,
            "version": VERSION,
            "embedded": self._embedded,
        }
        self._info = json.dumps(info, ensure_ascii=False, separators=(",", ":"))
        return self._info

    def _measure_rtt(self) -> int:
        rtt_us = processes.measure_rtt_us(self._config.redis)
        self._slow = [*self._slow, rtt_us] if rtt_us > SLOW_RTT_US else []
        if len(self._slow) >= RTT_READINGS:
            log.warning(
                "Redis answers slowly: %s µs for a PING; is it, its network or this process overloaded?", rtt_us
            )
            self._slow = []
        return rtt_us

    def _title(self) -> str:
        stopping = " stopping" if self._quiet else ""
        tag = f" {self._options.tag}" if self._options.tag else ""
        return f"wurk {VERSION}{tag} [{len(self._busy)} of {self._config.total_concurrency} busy]{stopping}"

    def _tell_redis(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (RedisUnavailable, RedisRefused) as error:
            self._config.report(error, "telling Redis")


def rss_kb() -> int:
    """Resident memory in KB; 0 where the system does not tell."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    line = next((line for line in text.splitlines() if line.startswith("VmRSS:")), "")
    return int(line.split()[1]) if line else 0


def _set_title(title: str) -> None:
    """The process title, where the package setproctitle is installed."""
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    setproctitle(title)
