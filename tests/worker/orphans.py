"""What dead processes leave behind, and reapers that find it."""

from __future__ import annotations

import redis as redis_py

from tests.support.proxy import Proxy
from tests.worker.rig import Rig, numbered
from wurk_django.worker.reaper import Reaper

FOREIGN = "queue:q|elsewhere|4711|ab12cd34ef56|0"


def left_behind(redis: redis_py.Redis, key: str, count: int = 3, idle_s: int = 45) -> list[bytes]:
    """A private list that nobody touched for `idle_s`; its jobs, the oldest first."""
    jobs = numbered(count)
    for start in range(0, count, 1000):
        redis.lpush(key, *jobs[start : start + 1000])
    redis.restore(key, 0, redis.dump(key), replace=True, idletime=idle_s)
    return jobs


def alive(redis: redis_py.Redis, name: str) -> None:
    redis.sadd("processes", name)
    redis.hset(name, "info", "{}")


def reaper_behind(rig: Rig, proxy: Proxy, **options: float) -> Reaper:
    config = rig.config(["q"], url=proxy.url, **{"reaper_grace": 30, **options})
    config.freeze()
    return Reaper(config)
