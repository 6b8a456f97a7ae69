"""Hypothesis plays producers, workers, schedulers and reapers against a real Redis, in any order.

Each act is the storage's own function, in one thread, so it is known after each where every job must be. An answer may
get lost: the call was applied and its caller was told otherwise, or it was sent again where it may be. More examples:
STATEMACHINE_EXAMPLES=2000.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import redis as redis_py
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.servers import RedisServer
from wurk_django import keys
from wurk_django.config import Options
from wurk_django.connection import Redis, RedisOptions, Session
from wurk_django.errors import RedisUnavailable
from wurk_django.storage import orphans, processes, queues, sorted_sets
from wurk_django.storage.queues import Ack, Lane

T = TypeVar("T")

EXAMPLES = int(os.environ.get("STATEMACHINE_EXAMPLES") or 150)
STEPS = 40
NAMES = ("mail", "low")
FAR_S = 1e6
OPTIONS = Options()
POISON_LIMIT = 2
SOMETIMES = st.sampled_from([False, False, False, True])
RAISED = object()  # in the place of a result whose answer got lost


class LossyRedis(Redis):
    """Loses the answer of the next block when told to, and sends it again where the caller allows that."""

    lossy = False

    def run(self, block: Callable[[Session], T], *, idempotent: bool = False) -> T:
        result = super().run(block, idempotent=idempotent)
        if not self.lossy:
            return result
        self.lossy = False
        if idempotent:
            return super().run(block, idempotent=True)
        raise RedisUnavailable("the answer was lost")


@dataclass
class Worker:
    """A process as its storage sees it: its lanes, and what it believes to hold."""

    pid: int
    alive: bool = True
    held: list[tuple[Lane, bytes]] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return f"host:{self.pid}:abcdefabcdef"

    @property
    def lanes(self) -> list[Lane]:
        return [
            Lane(name, queues.public_key(name), keys.private_list(name, "host", self.pid, "abcdefabcdef"))
            for name in NAMES
        ]


class Conservation(RuleBasedStateMachine):
    """`where` says for each payload that exists which key must hold it; what is not there must be nowhere."""

    raw: redis_py.Redis
    redis: LossyRedis

    @initialize()
    def begin(self) -> None:
        self.raw.flushdb()
        self.redis.lossy = False
        self.where: dict[bytes, str] = {}
        self.counts: Counter[str] = Counter()  # by jid, how often the reaper brought it back
        self.numbers = itertools.count()
        self.workers = [Worker(1), Worker(2)]
        for worker in self.workers:
            self.beat(worker)
        for name in NAMES:
            self.push(name, 3, False)

    # --- jobs come in ---------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4), lost=SOMETIMES)
    def push(self, name: str, count: int, lost: bool) -> None:
        payloads = [self.payload(name) for _ in range(count)]
        self.act(lost, lambda: queues.push(self.redis, {name: payloads}))
        self.put(payloads, queues.public_key(name))

    @rule(name=st.sampled_from(NAMES), due=st.booleans(), lost=SOMETIMES)
    def schedule(self, name: str, due: bool, lost: bool) -> None:
        payload = self.payload(name)
        score = 1.0 if due else self.redis_time() + FAR_S
        self.act(lost, lambda: sorted_sets.schedule(self.redis, [(score, payload)]))
        self.put([payload], keys.SCHEDULE)

    # --- a worker's life ------------------------------------------------------------------------------------------

    @rule(
        index=st.integers(0, 1), wanted=st.integers(0, 5), acks=st.integers(0, 3), order=st.permutations(NAMES),
        lost=SOMETIMES,
    )  # fmt: skip
    def dispatch(self, index: int, wanted: int, acks: int, order: list[str], lost: bool) -> None:
        """Acknowledge some and claim others, in one call; a lost claim stays in the private list, unknown."""
        worker = self.workers[index]
        paused = queues.paused(self.redis)
        lanes = [lane for name in order for lane in worker.lanes if lane.name == name and name not in paused]
        lanes = lanes if wanted else []
        finished = worker.held[:acks]
        sent = [Ack(lane.private, keys.recovered(jid_of(raw)), raw) for lane, raw in finished]
        expected = [job for lane in lanes for job in self.waiting(lane)][:wanted]
        answer = self.act(
            lost, lambda: queues.dispatch(self.redis, sent, lanes, [wanted] * len(lanes), wanted, OPTIONS)
        )  # fmt: skip
        for lane, raw in finished:
            del self.counts[jid_of(raw)]
            if self.where.get(raw) == lane.private:
                del self.where[raw]
        for lane, raw in expected:
            self.where[raw] = lane.private
        if answer is RAISED:
            return  # the acks are sent again one day: they are held still
        del worker.held[:acks]
        assert [(claim.lane, claim.payload) for claim in answer] == expected
        worker.held += expected

    @precondition(lambda self: self.holders())
    @rule(index=st.integers(0, 1), death=st.booleans(), due=st.booleans(), lost=SOMETIMES)
    def fail(self, index: int, death: bool, due: bool, lost: bool) -> None:
        """A running job fails: to the retry set, or dead."""
        worker = self.holders()[index % len(self.holders())]
        lane, raw = worker.held.pop(0)
        counter, again = keys.recovered(jid_of(raw)), self.payload(lane.name)
        owned = self.where.get(raw) == lane.private
        if death:
            answer = self.act(lost, lambda: sorted_sets.bury(self.redis, lane, counter, raw, again, OPTIONS))
        else:
            delay_s = -1.0 if due else FAR_S
            answer = self.act(lost, lambda: sorted_sets.book_retry(self.redis, lane, counter, raw, again, delay_s))
        if owned:
            del self.where[raw], self.counts[jid_of(raw)]
            self.put([again], keys.DEAD if death else keys.RETRY)
        assert answer == (owned and not lost)  # sent again, it finds nothing and says so

    @precondition(lambda self: self.holders())
    @rule(index=st.integers(0, 1), count=st.integers(1, 4), lost=SOMETIMES)
    def requeue(self, index: int, count: int, lost: bool) -> None:
        """A stop gives back what runs, newest first."""
        worker = self.holders()[index % len(self.holders())]
        given, worker.held = worker.held[-count:][::-1], worker.held[:-count]
        self.act(lost, lambda: queues.requeue(self.redis, given))
        for lane, raw in given:
            if self.where.get(raw) == lane.private:
                self.where[raw] = lane.public

    @rule(index=st.integers(0, 1), lost=SOMETIMES)
    def reconcile(self, index: int, lost: bool) -> None:
        """Take back what stands in the private lists and nobody knows of."""
        worker = self.workers[index]
        for lane in worker.lanes:
            listed = Counter(queues.held(self.redis, lane, OPTIONS))
            listed.subtract(raw for held_lane, raw in worker.held if held_lane == lane)
            unknown = [(lane, raw) for raw in +listed]
            self.act(lost, lambda given=unknown: queues.requeue(self.redis, given))
            for _, raw in unknown:
                self.where[raw] = lane.public
        assert not [raw for raw, key in self.where.items() if self.is_unknown(worker, raw, key)]

    @rule(index=st.integers(0, 1))
    def die(self, index: int) -> None:
        """Nobody beats any more; what it held stays where it was. Another process takes its place when all is back."""
        worker = self.workers[index]
        worker.alive = False
        worker.held.clear()
        self.raw.delete(worker.identity)

    @rule(index=st.integers(0, 1))
    def come_to_life(self, index: int) -> None:
        self.beat(self.workers[index])

    # --- what others do -------------------------------------------------------------------------------------------

    @rule(index=st.integers(0, 1), name=st.sampled_from(NAMES), proven=st.booleans(), lost=SOMETIMES)
    def reap(self, index: int, name: str, proven: bool, lost: bool) -> None:
        """Drain a list. Unproven: the heartbeat decides. Proven: also that of a process that only stood still."""
        worker = self.workers[index]
        lane = next(lane for lane in worker.lanes if lane.name == name)
        if proven and self.holders():  # the list of a job that runs: its outcome comes too late then
            worker = self.holders()[index % len(self.holders())]
            lane = worker.held[0][0]
        payloads = orphans.newest(self.redis, lane.private)
        counters = [keys.recovered(jid_of(raw)) for raw in payloads]
        identity = None if proven else worker.identity
        self.act(
            lost and bool(payloads),
            lambda: orphans.drain(self.redis, lane.private, lane.name, identity, payloads, counters, POISON_LIMIT),
        )
        for raw in payloads if proven or not worker.alive else []:
            if self.counts[jid_of(raw)] < POISON_LIMIT:
                self.where[raw] = lane.public
                self.counts[jid_of(raw)] += 1

    @rule(index=st.integers(0, 1), name=st.sampled_from(NAMES), lost=SOMETIMES)
    def bury_poison(self, index: int, name: str, lost: bool) -> None:
        """What came back too often goes from the private list to the dead set, once its handlers have run."""
        lane = next(lane for lane in self.workers[index].lanes if lane.name == name)
        for raw in orphans.newest(self.redis, lane.private):
            counter = keys.recovered(jid_of(raw))
            if self.counts[jid_of(raw)] >= POISON_LIMIT:
                self.act(
                    lost,
                    lambda raw=raw, counter=counter: sorted_sets.bury(self.redis, lane, counter, raw, raw, OPTIONS),
                )
                self.where[raw] = keys.DEAD
                del self.counts[jid_of(raw)]

    @rule(name=st.sampled_from([keys.SCHEDULE, keys.RETRY]), limit=st.integers(1, 3), lost=SOMETIMES)
    def promote(self, name: str, limit: int, lost: bool) -> None:
        now = self.redis_time()
        due = [raw for raw, score in self.raw.zrange(name, 0, -1, withscores=True) if score <= now]
        taken = due[: 2 * limit] if lost else due[:limit]  # sent again, it promotes the next ones
        self.act(lost, lambda: sorted_sets.promote_due(self.redis, name, OPTIONS, limit=limit))
        for raw in taken:
            self.where.pop(raw)
        for raw in self.found_in_queues() - set(self.where):  # the same job, stamped anew
            assert jid_of(raw) in {jid_of(old) for old in taken}
            self.where[raw] = queues.public_key(json.loads(raw)["queue"])

    @precondition(lambda self: self.raw.zcard(keys.SCHEDULE) + self.raw.zcard(keys.RETRY))
    @rule()
    def time_passes(self) -> None:
        """What was far away is due."""
        for name in (keys.SCHEDULE, keys.RETRY):
            members = self.raw.zrange(name, 0, -1)
            if members:
                self.raw.zadd(name, dict.fromkeys(members, 1.0), xx=True)

    @rule(name=st.sampled_from(NAMES), lost=SOMETIMES)
    def pause_or_unpause(self, name: str, lost: bool) -> None:
        change = queues.unpause if queues.is_paused(self.redis, name) else queues.pause
        self.act(lost, lambda: change(self.redis, name))

    # --- the law --------------------------------------------------------------------------------------------------

    @invariant()
    def every_job_is_in_one_place_and_it_is_the_right_one(self) -> None:
        if not hasattr(self, "where"):
            return
        found: list[tuple[bytes, str]] = []
        for key in sorted(self.raw.scan_iter(count=1000)):
            name = key.decode()
            if name.startswith("queue:"):
                found += [(raw, name) for raw in self.raw.lrange(key, 0, -1)]
            elif name in (keys.SCHEDULE, keys.RETRY, keys.DEAD):
                found += [(raw, name) for raw in self.raw.zrange(key, 0, -1)]
        assert Counter(found) == Counter(self.where.items())
        counters = {jid: int(self.raw.get(keys.recovered(jid)) or 0) for jid in self.counts}
        assert counters == dict(self.counts)

    # --- means ----------------------------------------------------------------------------------------------------

    def act(self, lost: bool, call: Callable[[], Any]) -> Any:
        """Make a call, its answer lost or not."""
        self.redis.lossy = lost
        try:
            with suppress(RedisUnavailable):
                return call()
            return RAISED
        finally:
            self.redis.lossy = False

    def payload(self, queue: str) -> bytes:
        fields = {"class": "Work", "args": [], "queue": queue, "jid": f"{next(self.numbers):024x}"}
        return json.dumps(fields).encode()

    def put(self, payloads: list[bytes], key: str) -> None:
        self.where.update(dict.fromkeys(payloads, key))

    def holders(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.held]

    def waiting(self, lane: Lane) -> list[tuple[Lane, bytes]]:
        return [(lane, raw) for raw in reversed(self.raw.lrange(lane.public, 0, -1))]

    def found_in_queues(self) -> set[bytes]:
        return {raw for name in NAMES for raw in self.raw.lrange(queues.public_key(name), 0, -1)}

    def is_unknown(self, worker: Worker, raw: bytes, key: str) -> bool:
        private = {lane.private for lane in worker.lanes}
        return key in private and raw not in {held for _, held in worker.held}

    def redis_time(self) -> float:
        seconds, micros = self.raw.time()
        return float(seconds) + micros / 1e6

    def beat(self, worker: Worker) -> None:
        worker.alive = True
        processes.beat(self.redis, worker.identity, {"info": "{}", "beat": 1}, {}, 600)


def jid_of(raw: bytes) -> str:
    jid: str = json.loads(raw)["jid"]
    return jid


@pytest.fixture
def machine(redis_server: RedisServer, redis: redis_py.Redis) -> Iterator[type[Conservation]]:
    class Bound(Conservation):
        raw = redis

    Bound.redis = LossyRedis(RedisOptions(redis_server.url))
    yield Bound
    Bound.redis.close()


@pytest.mark.oracle("reliability:C2", "reliability:A14", "reliability:R21")
def test_no_order_of_acts_and_lost_answers_loses_or_doubles_a_job(machine: type[Conservation]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
