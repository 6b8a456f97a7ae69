"""Many threads, many small jobs, several queues, uneven supply: each job exactly once, nothing left behind."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
import redis as redis_py

from tests.worker.rig import Recorder, Rig, enqueue, payload, private, queued, wait_for
from wurk_django.config import Capsule
from wurk_django.worker.dispatcher import Dispatcher

QUEUES = ["a", "b", "c", "d"]
JOBS = 20_000


def supply(redis: redis_py.Redis, seed: int) -> None:
    """All the jobs, in bursts of uneven size with uneven pauses between them."""
    chance = random.Random(seed)
    number = 0
    while number < JOBS:
        size = min(chance.choice([1, 1, 2, 3, 10, 50, 200]), JOBS - number)
        with redis.pipeline(transaction=False) as pipe:
            for _ in range(size):
                pipe.lpush(f"queue:{chance.choice(QUEUES)}", payload("work", number))
                number += 1
            pipe.execute()
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.004)


@pytest.mark.parametrize(
    "queues", [QUEUES, [f"{name},{weight}" for weight, name in enumerate(QUEUES, 1)]], ids=["strict", "weighted"]
)
def test_twenty_thousand_jobs_on_ten_threads_run_once_each(
    queues: list[str], redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    jobs.job()
    manager = rig.manager(rig.config(queues, 10, fetch_block=0.2, skip_default_job_logging=True))

    supply(redis, seed=len(queues[0]))
    wait_for(lambda: len(jobs.calls) >= JOBS, 30)
    wait_for(lambda: manager.idle)

    repeated = [number for (number,), times in Counter(jobs.calls).items() if times > 1]
    assert repeated == []
    assert len(jobs.calls) == JOBS
    assert all(queued(redis, queue) == private(redis, queue) == [] for queue in QUEUES)
    assert manager.dispatcher.empty
    assert redis.exists("retry", "dead") == 0
    assert rig.errors == []


def test_jobs_of_uneven_length_run_once_each_and_none_waits_behind_a_long_one(
    redis: redis_py.Redis, rig: Rig, jobs: Recorder
) -> None:
    chance = random.Random(3)
    delays: list[float] = []

    def work(pushed_at: float, seconds: float) -> None:
        delays.append(time.monotonic() - pushed_at)
        if seconds:
            time.sleep(seconds)

    jobs.job(act=work)
    manager = rig.manager(rig.config(QUEUES, 4, fetch_block=0.2, skip_default_job_logging=True))
    for _ in range(300):
        seconds = chance.choice([0, 0, 0, 0, 0.002, 0.02])
        enqueue(redis, chance.choice(QUEUES), payload("work", time.monotonic(), seconds))
        time.sleep(0.003)

    wait_for(lambda: len(jobs.calls) == 300, 10)
    wait_for(lambda: manager.idle)
    assert len(set(jobs.calls)) == 300
    assert all(private(redis, queue) == [] for queue in QUEUES)
    assert sorted(delays)[-3] < 0.5


def test_threads_that_come_and_go_on_one_dispatcher_lose_and_double_nothing(redis: redis_py.Redis, rig: Rig) -> None:
    """Takers that stop after a few jobs, as threads that die do; others follow."""
    taken: list[bytes] = []
    dispatcher = rig.dispatcher(rig.config(["a", "b"], 6, fetch_block=0.05), tended=True)
    stop = threading.Event()

    def take_some(count: int) -> None:
        for _ in range(count):
            work = dispatcher.take()
            if work is None:
                return
            taken.append(work.raw)
            dispatcher.finish(work, 0.0001)

    def keep_coming() -> None:
        chance = random.Random()
        while not stop.is_set():
            thread = threading.Thread(target=take_some, args=(chance.randrange(1, 8),))
            thread.start()
            thread.join()

    comers = [threading.Thread(target=keep_coming) for _ in range(6)]
    for comer in comers:
        comer.start()
    raws = [payload("work", number) for number in range(3000)]
    for start in range(0, len(raws), 100):
        enqueue(redis, random.choice("ab"), *raws[start : start + 100])
        time.sleep(0.005)

    wait_for(lambda: len(taken) >= len(raws), 20)
    stop.set()
    dispatcher.quiet()
    for comer in comers:
        comer.join(5)
    assert sorted(taken) == sorted(raws)
    assert private(redis, "a") == private(redis, "b") == []
    assert dispatcher.empty


def test_two_processes_worth_of_dispatchers_share_queues_without_doubling(redis: redis_py.Redis, rig: Rig) -> None:
    config = rig.config(["a"], 3, fetch_block=0.05)
    capsule: Capsule = config.capsules["default"]
    dispatchers = [rig.dispatcher(config, index=index, tended=True) for index in range(3)]
    taken: list[bytes] = []

    def work(dispatcher: Dispatcher) -> None:
        while (found := dispatcher.take()) is not None:
            taken.append(found.raw)
            dispatcher.finish(found, 0.0001)

    threads = [threading.Thread(target=work, args=(dispatcher,)) for dispatcher in dispatchers for _ in range(3)]
    for thread in threads:
        thread.start()
    raws = [payload("work", number) for number in range(3000)]
    enqueue(redis, "a", *raws)

    wait_for(lambda: len(taken) >= 3000, 20)
    for dispatcher in dispatchers:
        dispatcher.quiet()
    for thread in threads:
        thread.join(5)
    assert sorted(taken) == sorted(raws)
    assert capsule.queues.names == ("a",)
    assert all(private(redis, "a", index) == [] for index in range(3))
