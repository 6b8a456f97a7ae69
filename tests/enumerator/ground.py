"""What stands in Redis before a scenario begins: jobs laid out by hand, every one of them known by its jid."""

from __future__ import annotations

import json
import time
from typing import Any

import redis as redis_py

FOREIGN = ("elsewhere", 4711, "abad1deaabad")  # host, pid and nonce of a process that is dead and was no kin of ours


class Ground:
    """Lays jobs; `jids` are those that may never be lost."""

    def __init__(self, redis: redis_py.Redis) -> None:
        self.redis = redis
        self.jids: list[str] = []

    def queue(self, name: str = "default", kind: str = "Work", count: int = 1, *args: Any, **fields: Any) -> list[str]:
        """Jobs that wait, the first to run first."""
        raws = self._make(name, kind, count, args, fields)
        self.redis.sadd("queues", name)
        self.redis.lpush(f"queue:{name}", *raws)
        return self.jids[-count:]

    def due(self, set_name: str, name: str = "default", kind: str = "Work", count: int = 1, **fields: Any) -> list[str]:
        """Jobs of `schedule` or `retry` whose time has come."""
        raws = self._make(name, kind, count, (), fields)
        self.redis.zadd(set_name, {raw: 1.0 + index for index, raw in enumerate(raws)})
        return self.jids[-count:]

    def orphaned(self, name: str = "default", kind: str = "Work", count: int = 1, **fields: Any) -> list[str]:
        """Jobs that a dead process had claimed."""
        host, pid, nonce = FOREIGN
        raws = self._make(name, kind, count, (), fields)
        self.redis.sadd("processes", f"{host}:{pid}:{nonce}")
        self.redis.lpush(f"queue:{name}|{host}|{pid}|{nonce}|0", *raws)
        return self.jids[-count:]

    def raw(self, name: str, payload: bytes) -> None:
        """Bytes that are perhaps no job."""
        self.jids.append(jid_of(payload))
        self.redis.lpush(f"queue:{name}", payload)

    def _make(self, name: str, kind: str, count: int, args: tuple[Any, ...], fields: dict[str, Any]) -> list[bytes]:
        raws = []
        for _ in range(count):
            jid = f"{len(self.jids):024x}"
            self.jids.append(jid)
            payload = {"class": kind, "args": list(args), "retry": True, "queue": name, "jid": jid}
            payload |= {"created_at": int(time.time() * 1000), **fields}
            raws.append(json.dumps(payload).encode())
        return raws


def jid_of(payload: bytes) -> str:
    """The jid of a payload; for one that is no job, its bytes stand for it."""
    try:
        return str(json.loads(payload)["jid"])
    except (ValueError, KeyError, TypeError):
        return "raw-" + payload[:40].hex()
