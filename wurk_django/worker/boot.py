"""What must be true of the server before a worker starts: one clear message with the way out, or go."""

from __future__ import annotations

import logging

from ..config import Config
from ..errors import ConfigurationError, RedisRefused, RedisUnavailable
from ..storage import server

log = logging.getLogger("wurk")

OLDEST = {"Redis": (7, 0, 0), "Valkey": (7, 2, 0)}
#: The distributions' builds with the fixes of known vulnerabilities; older ones are worth a warning.
FIXED = {"Redis": (7, 0, 15), "Valkey": (7, 2, 7)}


def check_server(config: Config) -> server.Server:
    """Look at the Redis of this configuration. Raises ConfigurationError with the reason and what to do."""
    where = config.redis_options.describe()
    try:
        found = server.inspect(config.redis)
    except (RedisUnavailable, RedisRefused) as error:
        raise ConfigurationError(
            f"Redis at {where} cannot be used: {error}. Start it, or correct WURK['REDIS'] or REDIS_URL."
        ) from error
    version = ".".join(map(str, found.version))
    oldest = OLDEST.get(found.product)
    if oldest and found.version < oldest:
        needed = ".".join(map(str, oldest))
        raise ConfigurationError(f"{found.product} {version} at {where} is too old; {needed} or newer is needed.")
    if found.cluster:
        raise ConfigurationError(
            f"{where} is a Redis Cluster, which cannot run scripts over several queues. Use a single primary, with"
            " Sentinel for failover."
        )
    if found.policy not in ("", "noeviction"):
        raise ConfigurationError(
            f"{where} has maxmemory-policy {found.policy} and would throw jobs away when its memory is full. Set"
            " `maxmemory-policy noeviction` (CONFIG SET and redis.conf), or use another Redis than that of the cache."
        )
    if found.version < FIXED.get(found.product, (0,)):
        log.warning("%s %s at %s lacks security fixes; update it", found.product, version, where)
    return found
