"""What kind of server answers: product, version, cluster, eviction policy."""

from __future__ import annotations

from typing import NamedTuple

from ..connection import Redis
from ..errors import RedisRefused


class Server(NamedTuple):
    """One Redis-protocol server. `policy` is empty when the server does not tell."""

    product: str
    version: tuple[int, ...]
    cluster: bool
    policy: str


def inspect(redis: Redis) -> Server:
    """Ask the server about itself. Valkey calls itself redis_version 7.2.4, so its own version is read first."""
    try:
        fields = _fields(redis.execute("INFO", idempotent=True))
    except RedisRefused:
        return Server("a server without INFO", (9, 9, 9), False, "")
    product = "Valkey" if "valkey_version" in fields else "Redis"
    version = fields.get("valkey_version") or fields.get("redis_version") or "9.9.9"
    return Server(
        product,
        tuple(int(part) for part in version.split(".") if part.isdigit()),
        fields.get("cluster_enabled") == "1" or fields.get("redis_mode") == "cluster",
        fields.get("maxmemory_policy", ""),
    )


def now_s(redis: Redis) -> float:
    """The time by the clock of Redis."""
    seconds, micros = redis.execute("TIME", idempotent=True)
    return int(seconds) + int(micros) / 1_000_000


def _fields(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in lines}
