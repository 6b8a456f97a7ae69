"""The mutants: a patch each, and the crash points that must fail with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class PatchDoesNotApply(Exception):
    """The code that a mutant changes is not there any more, or not only once: the mutant must follow the code."""


@dataclass(frozen=True)
class Mutant:
    """`replace` in `file` (below the package) by `by`; then at least one of these points must not balance."""

    name: str
    file: str
    replace: str
    by: str
    points: tuple[str, ...]

    def apply(self, package: Path) -> None:
        """Change the copy of the package at this path."""
        path = package / self.file
        text = path.read_text() if path.exists() else ""
        if text.count(self.replace) != 1:
            raise PatchDoesNotApply(f"{self.name}: {self.file} has {text.count(self.replace)} times {self.replace!r}")
        path.write_text(text.replace(self.replace, self.by))


_RETRY = """    return bool(_retry.run(redis, (lane.private, keys.RETRY, counter), arguments, idempotent=True))
"""
_PROMOTE = """    handled, stuck, blocked_by, early = _promote.run(redis, names, arguments, idempotent=True)
"""

MUTANTS = [
    Mutant(
        "BRPOP: a claim keeps no copy",
        "storage/lua/dispatch.lua",
        "local pushed = redis.pcall('LPUSH', private, payload)",
        "local pushed = 1",
        ("run-one/dispatch:claim#1/kill-after", "run-one/dispatch:claim#1/answer-lost"),
    ),
    Mutant(
        "ack first, then run",
        "worker/processor.py",
        "                outcome = runner.run(work, switch, name, cell)\n",
        "                dispatcher.finish(work, 0.0)\n"
        "                dispatcher.flush()\n"
        "                outcome = runner.run(work, switch, name, cell)\n",
        ("fail-once/retry#1/kill-before", "stop-one-running/requeue#1/kill-before"),
    ),
    Mutant(
        "LREM, then the retry, as two calls",
        "storage/sorted_sets.py",
        _RETRY,
        """    redis.execute("LREM", lane.private, 1, payload, idempotent=True)
    redis.execute("ZADD", keys.RETRY, 1.0, retry_payload, idempotent=True)
    return True
""",
        ("fail-once/lrem:queue:default*#1/kill-after", "fail-once/zadd:retry#1/kill-before"),
    ),
    Mutant(
        "a bare pipeline books the retry",
        "storage/sorted_sets.py",
        _RETRY,
        """    commands = [("ZADD", keys.RETRY, 1.0, retry_payload), ("LREM", lane.private, 1, payload)]
    redis.pipeline(commands, idempotent=True)
    return True
""",
        ("fail-once/zadd:retry#1/OOM", "full-redis/ping#1/kill-before"),
    ),
    Mutant(
        "a gap between the schedule and the queue",
        "storage/sorted_sets.py",
        _PROMOTE,
        """    import json, time
    due = redis.execute("ZRANGE", set_name, "-inf", time.time(), "BYSCORE", "LIMIT", 0, limit, idempotent=True)
    for member in due:
        if redis.execute("ZREM", set_name, member, idempotent=True):
            redis.execute("LPUSH", keys.queue(json.loads(member)["queue"]), member)
    handled, stuck, blocked_by, early = len(due), 0, b"", 0
""",
        ("promote-one/zrem:schedule#1/kill-after", "promote-one/lpush:queue:default#1/kill-before"),
    ),
    Mutant(
        "no reconcile after a lost claim",
        "worker/dispatcher.py",
        "            if self._lost_claim or monotonic() - self._reconciled_at >= RECONCILE_S:\n",
        "            if False:\n",
        ("run-one/dispatch:claim#1/answer-lost", "claim-by-wait/blmove:queue:default#1/answer-lost"),
    ),
    Mutant(
        "no reaper",
        "storage/orphans.py",
        "        for key in found:\n",
        "        for key in ():\n",
        ("run-one/dispatch:claim#1/kill-after", "claim-by-wait/blmove:queue:default#1/kill-after"),
    ),
    Mutant(
        "an eager reaper: who lives is not asked",
        "worker/verdict.py",
        "        os.kill(pid, 0)\n",
        "        return False\n",
        ("sweep-beside-the-living/smembers:processes#1/kill-before", "sweep-beside-the-living/scan#2/BUSY"),
    ),
    Mutant(
        "the reaper deletes before it copies",
        "storage/orphans.py",
        "    return [Fate(number) for number in _drain.run(redis, names, arguments, idempotent=True)]\n",
        """    redis.execute("DEL", _bytes(key), idempotent=True)
    redis.execute("RPUSH", keys.queue(queue_name), *payloads)
    return [Fate.MOVED] * len(payloads)
""",
        ("reap-one/del:queue:default*#1/kill-after", "reap-one/rpush:queue:default#1/kill-before"),
    ),
    Mutant(
        "a push is sent again when its answer was lost",
        "storage/queues.py",
        "        redis.run(block)\n",
        "        redis.run(block, idempotent=True)\n",
        ("push/lpush:queue:default#1/answer-lost",),
    ),
    Mutant(
        "acknowledgements are forgotten when they could not be sent",
        "worker/dispatcher.py",
        "            done.extendleft(reversed(sent))\n",
        "",
        ("run-one/dispatch:ack:claim#1/request-lost",),
    ),
    Mutant(
        "a requeue proves nothing",
        "storage/lua/requeue.lua",
        "if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then\n    return 0\nend\n",
        "redis.call('LREM', KEYS[1], 1, ARGV[1])\n",
        ("stop-one-running/requeue#1/answer-lost",),
    ),
]
