"""What is broken at each of its commands: what a producer, a worker, a scheduler, a reaper does in ordinary life.

A scenario lays jobs (`lay`, straight into Redis) and plays its part (`play`, in the child, through the proxy).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.enumerator import jobs
from tests.enumerator.actor import Actor
from tests.enumerator.ground import Ground
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.errors import ConfigurationError, RedisRefused, RedisUnavailable
from wurk_django.storage import processes, queues
from wurk_django.worker import blocks, dispatcher, identity, process
from wurk_django.worker.launcher import Launcher

POLLING: dict[str, Any] = {"scheduler_initial_wait": 0.0, "poll_interval_average": 0.05}


@dataclass(frozen=True)
class Scenario:
    """`excused`: how many repeats a scenario explains by itself, as a hard stop does for what it gives back.
    `partner`: another worker plays this meanwhile, without a fault. `dead`: so many jobs end in the dead set, whatever
    breaks; None: it depends."""

    name: str
    lay: Callable[[Ground], object]
    play: Callable[[Actor], object]
    threads: int = 1
    excused: int = 0
    partner: Callable[[Actor], object] | None = None
    dead: int | None = 0


def nothing(_ground: Ground) -> None:
    """Lay nothing."""


def laid(*jobs: tuple[Any, ...], **fields: Any) -> Callable[[Ground], None]:
    """Jobs that wait: (queue, class, count, arguments…) each."""

    def lay(ground: Ground) -> None:
        for name, kind, count, *args in jobs:
            ground.queue(name, kind, count, *args, **fields)

    return lay


def worker(*queue_names: str, threads: int = 1, **options: Any) -> Callable[[Actor], None]:
    """Work until nothing is left on these queues."""
    return lambda actor: actor.work(queue_names or ("default",), threads, **options)


# --- producers --------------------------------------------------------------------------------------------------------


def push_one(client: Client, jid: str, **fields: Any) -> None:
    client.push({"class": "Work", "args": [], "jid": jid, **fields})


def push_several(actor: Actor) -> None:
    actor.produce(lambda client, jid: push_one(client, jid, queue=f"q{int(jid[-1], 16)}"), jids_of("p", 3))


def push_bulk(size: int, slice_size: int, **fields: Any) -> Callable[[Actor], None]:
    """A bulk push tells its jids only when it has succeeded; what it wrote before is in Redis or not."""

    def play(actor: Actor) -> None:
        config = actor.config()
        items = {"class": "Work", "args": [[]] * size, "batch_size": slice_size, **fields}
        with suppress(RedisUnavailable, RedisRefused):
            for jid in Client(config).push_bulk(items):
                jobs.note("acked", str(jid))
        config.reset_redis_pools()

    return play


def jids_of(letter: str, count: int) -> list[str]:
    return [f"{letter.encode().hex()}{number:022x}" for number in range(count)]


def pause_and_unpause(actor: Actor) -> None:
    config = actor.config()
    with suppress(RedisUnavailable, RedisRefused):  # whoever pauses hears of it
        queues.pause(config.redis, "default")
        queues.unpause(config.redis, "default")


# --- workers ----------------------------------------------------------------------------------------------------------


def push_while_it_waits(name: str, count: int, blocked: int) -> Callable[[Actor, Any], None]:
    """Jobs that come while the worker waits on its queues: blocking claims take them."""

    def push(actor: Actor, _launcher: Launcher) -> None:
        actor.wait_until(lambda: actor.is_blocked(blocked))
        ground = Ground(actor.direct)
        ground.jids = [""] * 1000  # beyond those laid before
        for _ in range(count):
            jid = f"{len(ground.jids):024x}"
            jobs.note("tried", jid)
            ground.queue(name)
            jobs.note("acked", jid)

    return push


def waiting(name: str, queue_names: Sequence[str], count: int = 1, blocked: int = 1, **options: Any) -> Any:
    def play(actor: Actor) -> None:
        push = push_while_it_waits(name, count, blocked)
        actor.work(
            queue_names, once_up=partial(push, actor), until=lambda: done_here(actor, queue_names, count), **options
        )

    return play


def done_here(actor: Actor, queue_names: Sequence[str], count: int) -> bool:
    return actor.has("end", count) and actor.is_drained(queue_names)


def two_capsules(actor: Actor) -> None:
    def configure(config: Config) -> None:
        config.capsules.clear()
        config.capsule("default", ["default"], 1)
        config.capsule("single", ["other", "low"], 1)

    actor.work(configure=configure)


def retry_here(actor: Actor) -> None:
    """Fail, be promoted and run again in the same worker."""

    def is_done() -> bool:
        return actor.make_due() and actor.has("end") and actor.is_drained(["default"])

    actor.work(until=is_done, **POLLING)


def fail_to_death(actor: Actor) -> None:
    def is_done() -> bool:
        return actor.make_due() and actor.has("death") and actor.is_drained(["default"])

    actor.work(until=is_done, **POLLING)


def stop_hard(threads: int, started: int) -> Callable[[Actor], None]:
    """Stop while jobs run on: they go back to their queue."""
    return lambda actor: actor.work(
        ["default"], threads, until=lambda: actor.has("start", started), timeout=0.05,
    )  # fmt: skip


def quiet_then_stop(actor: Actor) -> None:
    def quiet(launcher: Launcher) -> None:
        actor.wait_until(lambda: actor.has("start", 1))
        launcher.quiet()

    actor.work(once_up=quiet, until=lambda: actor.has("end"))


def give_back(actor: Actor) -> None:
    """Short jobs are claimed ahead behind a long one and go back in time."""
    actor.work(until=lambda: actor.has("end", 12) and actor.is_drained(["default"]))


def burst(actor: Actor) -> None:
    config = actor.config()
    config.capsule("default", ["default", "other"], 2)
    with suppress(ConfigurationError):  # Redis cannot be used at the start: said so, and another start will do it
        process.run(config, burst=True)


def small_cap(play: Callable[[Actor], object]) -> Callable[[Actor], object]:
    """With a size cap of 1,000 bytes."""

    def capped(actor: Actor) -> None:
        queues.MAX_CLAIM_BYTES = blocks.MAX_CLAIM_BYTES = 1000  # type: ignore[misc]
        play(actor)

    return capped


def lost_before(actor: Actor) -> None:
    """A job stands in our private list and we do not know of it, as after a claim whose answer was lost."""
    dispatcher.RECONCILE_S = 0.1
    actor.direct.lmove("queue:default", identity.private_list("default", 0), "RIGHT", "LEFT")
    actor.work(until=lambda: actor.has("end", 2) and actor.is_drained(["default"]), fetch_block=0.1)


def promote_all(count: int, *queue_names: str, **options: Any) -> Callable[[Actor], None]:
    def play(actor: Actor) -> None:
        def is_done() -> bool:
            sets = actor.direct.zcard("schedule") + actor.direct.zcard("retry")
            return not sets and actor.is_drained(queue_names) and actor.has("end", count)

        actor.work(queue_names or ["default"], until=is_done, **POLLING, **options)

    return play


def only_promote(actor: Actor) -> None:
    """Into queues that this worker does not serve."""
    actor.work(["q1"], until=lambda: not actor.direct.zcard("schedule"), **POLLING)


def reap(count: int, *queue_names: str, threads: int = 2) -> Callable[[Actor], None]:
    def play(actor: Actor) -> None:
        names = queue_names or ("default",)
        actor.work(
            names, threads, until=lambda: actor.has("end", count) and actor.is_drained(names), reaper_interval=0.1,
        )  # fmt: skip

    return play


def reap_poison(actor: Actor) -> None:
    def is_done() -> bool:
        return not actor.direct.keys("queue:*") and (actor.has("death") or actor.has("end"))

    actor.work(until=is_done, reaper_interval=0.1)


def told_to_stop(actor: Actor) -> None:
    """A signal comes with the heartbeat, from elsewhere."""
    heard: list[str] = []
    config = actor.config()
    with suppress(RedisUnavailable, RedisRefused):
        processes.send_signal(config.redis, identity.identity(), "TSTP")

    def send_again() -> bool:
        if not heard:
            actor.direct.lpush(f"{identity.identity()}-signals", "TSTP")
            actor.direct.expire(f"{identity.identity()}-signals", 60)
            time.sleep(0.02)
        return bool(heard) and actor.is_drained(["default"])

    actor.work(on_signal=heard.append, until=send_again, heartbeat_interval=0.02)


def beat_often(actor: Actor) -> None:
    actor.work(
        until=lambda: actor.has("end") and actor.is_drained(["default"]), heartbeat_interval=0.01, leader_interval=0.01,
        heartbeat_ttl=5.0,
    )  # fmt: skip


def unpause_later(actor: Actor) -> None:
    def unpause(_launcher: Launcher) -> None:
        with suppress(RedisUnavailable, RedisRefused):
            queues.unpause(actor.config().redis, "default")
        actor.direct.srem("paused", "default")  # pressed again, if need be

    actor.work(once_up=unpause)


def paused(ground: Ground) -> None:
    ground.queue()
    ground.redis.sadd("paused", "default")


def full_redis(ground: Ground) -> None:
    ground.queue("default", "Work", 5)
    ground.queue("default", "Flaky", 2)
    ground.queue("default", "Doomed", 1, retry=0)
    ground.redis.config_set("maxmemory", 1)


def empty_script_cache(ground: Ground) -> None:
    ground.queue("default", "Flaky")
    ground.redis.script_flush()


def many_dead(ground: Ground) -> None:
    ground.queue("default", "Doomed", 3, retry=0)
    ground.redis.zadd("dead", {b'{"jid":"old-%d"}' % number: 1.0 for number in range(5)})


def malformed(ground: Ground) -> None:
    ground.raw("default", b"{no json")
    ground.queue()


def oversized(ground: Ground) -> None:
    ground.queue("default", "Work", 2, "x" * 2000)
    ground.queue()


def poisoned(ground: Ground) -> None:
    for jid in ground.orphaned():
        ground.redis.set(f"super_fetch:recovered:{jid}", 3, ex=3600)


def two_orphans(ground: Ground) -> None:
    ground.orphaned("default", count=2)
    ground.orphaned("other", count=2)
    ground.queue("default")


def work_beside(actor: Actor) -> None:
    """A second worker on the same queues, until the lab says that it is enough."""
    actor.work(["default", "other"], 2, until=lambda: (actor.directory / "enough").exists(), reaper_interval=0.2)


def work_slowly(actor: Actor) -> None:
    """A sibling with a job that takes its time."""
    actor.work(["default"], 1, until=lambda: (actor.directory / "enough").exists())


def sweep_beside(actor: Actor) -> None:
    """Sweep while the sibling works: its job is its own."""
    actor.wait_until(lambda: actor.has("start"))
    actor.work(["default"], until=lambda: actor.has("end"), reaper_interval=0.03)


SCENARIOS = [
    Scenario("push", nothing, lambda actor: actor.produce(push_one, jids_of("a", 1))),
    Scenario("push-three-queues", nothing, push_several),
    Scenario("push-bulk", nothing, push_bulk(5, 1000)),
    Scenario("push-bulk-slices", nothing, push_bulk(30, 10)),
    Scenario("push-later", nothing, lambda a: a.produce(partial(push_one, at=time.time() + 60), jids_of("b", 2))),
    Scenario("push-bulk-later", nothing, push_bulk(6, 3, at=time.time() + 600)),
    Scenario("pause-unpause", laid(("default", "Work", 1)), pause_and_unpause),
    Scenario("run-one", laid(("default", "Work", 1)), worker()),
    Scenario("run-ten", laid(("default", "Work", 10)), worker()),
    Scenario("run-thirty", laid(("default", "Work", 30)), worker(threads=3), threads=3),
    Scenario("run-slow", laid(("default", "Work", 4, 5)), worker(threads=2), threads=2),
    Scenario("run-async", laid(("default", "AsyncWork", 3)), worker()),
    Scenario("run-two-queues", laid(("default", "Work", 2), ("other", "Work", 3)), worker("default", "other")),
    Scenario(
        "run-weighted",
        laid(("default", "Work", 4), ("other", "Work", 3), ("low", "Work", 3)),
        lambda actor: actor.work(["default,3", "other,2", "low,1"], 2),
        threads=2,
    ),
    Scenario("run-two-capsules", laid(("default", "Work", 3), ("low", "Work", 3)), two_capsules, threads=2),
    Scenario("claim-by-wait", nothing, waiting("default", ["default"])),
    Scenario("claim-by-wait-of-two", nothing, waiting("other", ["default", "other"], 2, 2)),
    Scenario("claim-with-two-idle", nothing, waiting("default", ["default", "low"], 3, 2, concurrency=2), threads=2),
    Scenario("claim-from-twelve", nothing, waiting("q11", [f"q{number}" for number in range(12)], 1, 8)),
    Scenario("fail-once", laid(("default", "Flaky", 1)), worker()),
    Scenario("fail-three", laid(("default", "Flaky", 3), ("default", "Work", 3)), worker(threads=2), threads=2),
    Scenario("fail-and-retry", laid(("default", "Flaky", 1)), retry_here),
    Scenario("last-failure", laid(("default", "Doomed", 1), retry=0), worker(), dead=1),
    Scenario("retry-then-death", laid(("default", "Doomed", 1), retry=1), fail_to_death, dead=1),
    Scenario("retry-false", laid(("default", "Doomed", 2), retry=False), worker()),
    Scenario("dead-false", laid(("default", "Doomed", 1), retry=0, dead=False), worker()),
    Scenario("hook-kills", laid(("default", "Killed", 1)), worker(), dead=1),
    Scenario("hook-discards", laid(("default", "Discarded", 1)), worker()),
    Scenario("unknown-class", laid(("default", "Nobody", 1), retry=1), worker(), dead=1),
    Scenario("malformed", malformed, worker(), dead=1),
    Scenario("oversized", oversized, small_cap(worker()), dead=None),
    Scenario("dead-set-trimmed", many_dead, worker(dead_max_jobs=4), dead=None),
    Scenario("stop-one-running", laid(("default", "Hold", 1), ("default", "Work", 2)), stop_hard(1, 1), excused=1),
    Scenario("stop-two-running", laid(("default", "Hold", 2)), stop_hard(2, 2), threads=2, excused=2),
    Scenario("stop-done-and-running", laid(("default", "Work", 3), ("default", "Hold", 1)), stop_hard(1, 4), excused=1),
    Scenario("quiet-then-stop", laid(("default", "Work", 1, 20), ("default", "Work", 2)), quiet_then_stop),
    Scenario(
        "give-back-unstarted",
        laid(("default", "Work", 8), ("default", "Work", 1, 150), ("default", "Work", 3)),
        give_back,
    ),
    Scenario("promote-one", lambda ground: ground.due("schedule"), promote_all(1)),
    Scenario("promote-hundred", lambda ground: ground.due("schedule", count=100), promote_all(100)),
    Scenario("promote-retries", lambda ground: ground.due("retry", count=3, retry_count=0), promote_all(3)),
    Scenario("promote-elsewhere", lambda ground: ground.due("schedule", "low", count=3), only_promote),
    Scenario("reap-one", lambda ground: ground.orphaned(), reap(1)),
    Scenario("reap-two-slices", lambda ground: ground.orphaned(count=130), reap(130)),
    Scenario("reap-two-queues", two_orphans, reap(5, "default", "other")),
    Scenario("sweep-beside-the-living", laid(("default", "Work", 1, 250)), sweep_beside, partner=work_slowly),
    Scenario("poison", poisoned, reap_poison, dead=1),
    Scenario("told-to-quiet", laid(("default", "Work", 1)), told_to_stop),
    Scenario("beat-often", laid(("default", "Work", 1, 60)), beat_often),
    Scenario("paused-then-not", paused, unpause_later),
    Scenario("reconcile", laid(("default", "Work", 2)), lost_before),
    Scenario("burst", laid(("default", "Work", 2), ("other", "Flaky", 1)), burst, threads=2),
    Scenario(
        "two-workers",
        laid(("default", "Work", 6, 2), ("other", "Work", 4, 2)),
        lambda actor: actor.work(["default", "other"], 2),
        threads=2,
        partner=work_beside,
    ),
    Scenario("full-redis", full_redis, worker(), dead=1),
    Scenario("empty-script-cache", empty_script_cache, worker()),
]
