"""One process of the fleet leads: it does what must be done once (docs/spec/reliability.md §10).

Best effort, no consensus: for a few seconds two processes may both believe that they lead, so what only the leader
does needs a guard of its own in Redis.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping

from ..clock import monotonic
from ..component import Periodic
from ..config import Config
from ..connection import Redis
from ..errors import RedisRefused, RedisUnavailable
from ..storage import leader

log = logging.getLogger("wurk")

CACHE_S = 5.0  # how long an answer of Redis is believed
VARIABLES = ("WURK_LEADER", "SIDEKIQ_LEADER")


class Leader:
    """A Component: campaigns in a thread of its own, goes on while quiet, gives the lock back when it is stopped."""

    def __init__(self, config: Config, identity: str) -> None:
        self._config = config
        self._options = config.options
        self._identity = identity
        # Of its own, without second attempts: the next campaign is one, and a stop must not wait for them.
        self._redis = Redis(config.redis_options, 2, "leader", config.on_redis_retry, attempts=1)
        self._may_lead = may_lead()
        self._held_until = -math.inf
        self._leads_by_redis = False
        self._seen_at = -math.inf
        self._renewed = False
        self._may_hold = False  # also when the answer of a campaign was lost
        self._token: int | None = None
        self._loop = Periodic("leader", self.campaign, self.wait_s, config.report, first_wait=lambda: 0.0)

    def start(self) -> None:
        """Campaign at once, then again and again."""
        if self._may_lead:
            self._loop.start()

    def quiet(self) -> None:
        """Lead on: a quiet process takes no jobs, but what only the leader does must not pause."""

    def stop(self) -> None:
        """Step down, so that a follower takes over at its next try. Everything that asks `is_leader` has ended."""
        self._loop.stop()
        self._step_down()
        try:
            if self._may_hold:
                leader.release_if_owner(self._redis, self._options.leader_key, self._identity)
        except (RedisUnavailable, RedisRefused) as error:
            log.info("the leader's lock was not given back and lapses by itself: %s", error)
        self._redis.close()

    def is_leader(self) -> bool:
        """Does this process lead, by an answer of Redis no older than 5 s?

        False as soon as the lock may have lapsed, whatever Redis said last.
        """
        if not self._holds:
            return False
        if monotonic() - self._seen_at >= CACHE_S:
            self._look()
        return self._leads_by_redis and self._holds

    def campaign(self) -> None:
        """Take or keep the lock once."""
        asked_at, held = monotonic(), self._holds
        self._renewed, self._may_hold = False, True
        won = leader.campaign(self._redis, self._options.leader_key, self._identity, self._options.leader_ttl)
        self._leads_by_redis, self._seen_at = won, monotonic()
        self._renewed = self._may_hold = won
        if not won:
            self._step_down()
            return
        self._held_until = asked_at + self._options.leader_ttl  # Redis counts from later: its lock outlives our claim
        if not held:
            self._begin_term()

    def wait_s(self) -> float:
        """Seconds to the next campaign. A renewal that failed is tried again as soon as a follower would try."""
        renewal_s = self._options.leader_ttl / 2
        return renewal_s if self._renewed else min(self._options.leader_interval, renewal_s)

    @property
    def token(self) -> int | None:
        """The number of the current term; None when not leading, or when Redis did not give one."""
        return self._token if self._holds else None

    @property
    def _holds(self) -> bool:
        return monotonic() < self._held_until

    def _begin_term(self) -> None:
        self._token = None
        try:
            self._token = leader.begin_term(self._redis)
        except (RedisUnavailable, RedisRefused) as error:
            self._config.report(error, "numbering the leader's term")
        log.info("%s leads", self._identity)
        self._config.hooks.fire("leader", self._config.report)

    def _step_down(self) -> None:
        if self._holds:
            log.info("%s leads no longer", self._identity)
        self._held_until = -math.inf

    def _look(self) -> None:
        self._seen_at = monotonic()  # also when it fails: a Redis that hangs is not asked by every call
        try:
            found = leader.current(self._redis, self._options.leader_key)
        except (RedisUnavailable, RedisRefused) as error:
            log.debug("cannot ask who leads: %s", error)
            return
        self._leads_by_redis = found == self._identity


def may_lead(environment: Mapping[str, str] = os.environ) -> bool:
    """Is this process allowed to lead? WURK_LEADER or SIDEKIQ_LEADER may say `false`."""
    said = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    return said.strip().lower() != "false"
