"""One crash test's stage: a Redis, a proxy before it, the project's directory, and the processes that it starts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis as redis_py

from tests.crash.ledger import Ledger
from tests.support.faults import script
from tests.support.line import Command
from tests.support.processes import PythonProcess, WorkerProcess, eventually
from tests.support.proxy import Predicate, Proxy
from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import RedisOptions
from wurk_django.storage import processes, queues, sorted_sets

RECOVERY_S = 15.0  # from the last restart until everything is done

claim_or_ack = script(queues._dispatch.sha.decode())
requeue = script(queues._requeue.sha.decode())
book_retry = script(sorted_sets._retry.sha.decode())
bury = script(sorted_sets._bury.sha.decode())
promote = script(sorted_sets._promote.sha.decode())
beat = script(processes._heartbeat.sha.decode())


def acks_in(command: Command) -> int:
    """How many acknowledgements a call of the dispatch script carries."""
    return int(command[3 + int(command[2])])


def is_claim(command: Command) -> bool:
    """A call of the dispatch script that asks for jobs."""
    return claim_or_ack(command) and int(command[4 + int(command[2])]) > 0


def is_ack(command: Command) -> bool:
    """A call of the dispatch script that acknowledges, whether it also claims or not."""
    return claim_or_ack(command) and acks_in(command) > 0


def requeue_of(jids: Collection[str]) -> Predicate:
    """Calls of the requeue script for one of these jobs."""
    return lambda command: requeue(command) and json.loads(command[-1])["jid"] in jids


@dataclass(frozen=True)
class Place:
    """Where Redis holds a job: a key, the attempt that waits or runs there."""

    key: str
    attempt: str

    @property
    def is_private(self) -> bool:
        return "|" in self.key


class Stage:
    """Made by the fixture `stage`; ends every process with the test."""

    def __init__(self, redis: redis_py.Redis, proxy: Proxy, directory: Path) -> None:
        self.redis = redis
        self.proxy = proxy
        self.directory = directory
        self.ledger = Ledger(directory / "ledger")
        direct = RedisOptions(f"redis://127.0.0.1:{proxy.upstream[1]}/0")
        self._config = Config(redis=direct)
        self.client = Client(self._config)
        self._processes: list[PythonProcess] = []
        for one in (queues._dispatch, queues._requeue, sorted_sets._retry, sorted_sets._bury, sorted_sets._promote):
            redis.script_load(one.source)  # else the first call is refused, and a kill after it would be one before it

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._config.reset_redis_pools()

    # --- processes and what they are given ------------------------------------------------------------------------

    def environment(self, *, url: str | None = None, **settings: Any) -> dict[str, str]:
        return {
            "DJANGO_SETTINGS_MODULE": "tests.crash.project.settings",
            "CRASH_REDIS": url or self.proxy.url,
            "CRASH_DIR": str(self.directory),
            "CRASH_WURK": json.dumps(settings),
        }

    def worker(
        self,
        *,
        concurrency: int = 5,
        queues: Sequence[str] = ("default",),
        flags: Sequence[str] = (),
        url: str | None = None,
        **settings: Any,
    ) -> WorkerProcess:
        """Start a worker; it talks to Redis through the proxy unless told otherwise."""
        environment = self.environment(url=url, **settings)
        process = WorkerProcess(environment, self._output(), concurrency=concurrency, queues=queues, flags=flags)
        self._processes.append(process)
        return process

    def python(self, *arguments: str) -> PythonProcess:
        process = PythonProcess(arguments, self.environment(), self._output())
        self._processes.append(process)
        return process

    def push(self, name: str, *args: Any, **options: Any) -> str:
        """Enqueue one job, not through the proxy."""
        jid = self.client.push({"class": name, "args": list(args), **options})
        assert jid is not None
        return jid

    def push_many(self, name: str, args: Sequence[Sequence[Any]], **options: Any) -> list[str]:
        jids = self.client.push_bulk({"class": name, "args": [list(one) for one in args], **options})
        return [jid for jid in jids if jid is not None]

    def lay(self, trap: str) -> None:
        """The next job that passes this point kills its process."""
        (self.directory / trap).touch()

    def open_gate(self, name: str) -> None:
        (self.directory / name).touch()

    # --- what became of the jobs ----------------------------------------------------------------------------------

    def places(self) -> dict[str, list[Place]]:
        """Every job that Redis holds, and where. Reads private lists, so it resets their idle times."""
        found: dict[str, list[Place]] = defaultdict(list)
        for key in self.redis.scan_iter("queue:*", _type="list"):
            for raw in self.redis.lrange(key, 0, -1):
                self._enter(found, key.decode(), raw)
        for key in ("schedule", "retry", "dead"):
            for raw in self.redis.zrange(key, 0, -1):
                self._enter(found, key, raw)
        return found

    def dead(self) -> set[str]:
        return {json.loads(raw)["jid"] for raw in self.redis.zrange("dead", 0, -1)}

    def where(self, jid: str) -> list[str]:
        """The keys that hold this job, private lists as "private"."""
        return sorted("private" if place.is_private else place.key for place in self.places().get(jid, []))

    def settle(self) -> None:
        """After the death of a worker: wait until nothing it sent is still on its way to Redis."""
        eventually(lambda: not self.proxy.lines(), 10, "the end of the dead worker's connections")

    def check_balance(self, jids: Collection[str]) -> dict[str, list[Place]]:
        """Each job is in exactly one place, or done and in none. Only while no worker runs."""
        places = self.places()
        ended = self.ledger.jids("end")
        doubled = {jid: found for jid, found in places.items() if len(found) > 1}
        assert not doubled, f"in more than one place: {doubled}"
        lost = [jid for jid in jids if jid not in places and jid not in ended]
        assert not lost, f"nowhere, and never done: {[self.ledger.times(jid) for jid in lost]} {lost}"
        return places

    def wait_until_done(self, jids: Collection[str], timeout_s: float = RECOVERY_S) -> None:
        """Wait until every job has ended or is dead, and no other waits or runs."""

        def is_done() -> bool:
            # SCAN alone: any other look at a private list would make it seem in use, and so delay its recovery.
            held = any(True for _ in self.redis.scan_iter("queue:*", _type="list"))
            waiting = held or self.redis.zcard("retry") or self.redis.zcard("schedule")
            return not waiting and self.ledger.jids("end") | self.dead() >= set(jids)

        eventually(is_done, timeout_s, lambda: f"the end of all jobs: {self._left(jids)}")

    def _left(self, jids: Collection[str]) -> str:
        missing = set(jids) - self.ledger.jids("end")
        places = self.places()
        shown = {jid: (places.get(jid), self.ledger.times(jid)) for jid in sorted(missing | set(places))[:5]}
        outputs = "\n".join(process.output for process in self._processes[-2:])
        return f"{len(missing)} never ended, Redis holds {len(places)}, such as {shown}\n{outputs}"

    def check_keys(self) -> None:
        """No key without a time to live is left behind but those that may stay (safety.md, after the fault matrix)."""
        stay = {"queues", "processes", "stat:processed", "stat:failed", "dead", "leader-token"}
        left = [key.decode() for key in self.redis.scan_iter() if self.redis.ttl(key) == -1]
        assert set(left) <= stay, f"left without a time to live: {sorted(set(left) - stay)}"

    def _enter(self, found: dict[str, list[Place]], key: str, raw: bytes) -> None:
        payload = json.loads(raw)
        found[payload["jid"]].append(Place(key, str(payload.get("retry_count"))))

    def _output(self) -> Path:
        return self.directory / f"process-{len(self._processes)}.log"
