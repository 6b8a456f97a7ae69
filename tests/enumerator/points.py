"""Which commands a scenario sends, by what name, and in which ways each may break."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.faults import Answer, CutReply, Kill, LoseReply, LoseRequest
from tests.support.line import Command
from tests.support.proxy import Action, Predicate
from wurk_django.script import Script
from wurk_django.storage import leader, orphans, processes, queues, sorted_sets

MAX_OCCURRENCES = 3  # of one command in a scenario: a loop is broken at its first rounds
KILLS = ("kill-before", "kill-after")
LOSSES = ("request-lost", "answer-lost", "answer-cut")
REFUSALS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "UNBLOCKED": "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
}
_ALWAYS = ("LOADING", "BUSY")
_READS = frozenset(
    {"PING", "GET", "MGET", "HGET", "HEXISTS", "HMGET", "SMEMBERS", "SISMEMBER", "SCARD", "SCAN", "LLEN", "LRANGE"}
    | {"OBJECT", "EXISTS", "TTL", "ZCARD", "INFO", "CLIENT", "CONFIG", "ROLE"}
)
_GREETINGS = frozenset({b"HELLO", b"AUTH", b"SELECT"})


@dataclass(frozen=True)
class Point:
    """The n-th command of a name (from 1) in a scenario, and what happens to it."""

    scenario: str
    command: str
    number: int
    fault: str

    def __str__(self) -> str:
        return f"{self.scenario}/{self.command}#{self.number}/{self.fault}"

    @classmethod
    def parse(cls, text: str) -> Point:
        scenario, rest = text.split("/", 1)
        named, fault = rest.rsplit("/", 1)
        command, number = named.rsplit("#", 1)
        return cls(scenario, command, int(number), fault)

    @property
    def kills(self) -> bool:
        return self.fault in KILLS

    @property
    def loses(self) -> bool:
        return self.fault in LOSSES


def _scripts() -> dict[bytes, str]:
    """The sha of every script that the core's rooms hold, to its name."""
    found = {}
    for module in (leader, orphans, processes, queues, sorted_sets):
        for value in vars(module).values():
            if isinstance(value, Script):
                found[value.sha] = value.name
    return found


SCRIPTS = _scripts()


class Namer:
    """Says what each command is called here: a script by its name, others with what they are about.

    Sees the commands of one run in their order, so that it knows which stand between MULTI and EXEC.
    """

    def __init__(self) -> None:
        self._in_multi: set[int] = set()

    def name(self, command: Command) -> str | None:
        """None: a greeting, which is no point."""
        verb = command[0]
        if verb in _GREETINGS or (verb == b"CLIENT" and command[1].upper() == b"SETINFO"):
            return None
        prefix = "multi-" if command.connection in self._in_multi else ""
        if verb == b"MULTI":
            self._in_multi.add(command.connection)
        if verb == b"EXEC":
            self._in_multi.discard(command.connection)
        if verb in (b"EVALSHA", b"EVAL"):
            sha = command[1] if verb == b"EVALSHA" else hashlib.sha1(command[1]).hexdigest().encode()
            return f"{prefix}{SCRIPTS.get(sha, 'script')}{_what(command)}"
        return f"{prefix}{verb.decode().lower()}{_what(command)}"


def _what(command: Command) -> str:
    """What stands behind the name: a promotion's set, what a dispatch does, or the first argument, without what differs
    from run to run."""
    script = SCRIPTS.get(command[1]) if command[0] == b"EVALSHA" else None
    if script == "dispatch":
        keys = int(command[2])
        acks, wanted = int(command[3 + keys]), int(command[4 + keys])
        return "".join([":ack" if acks else "", ":claim" if wanted else ""])
    if script == "promote":
        return ":" + command[3].decode()
    if script or command[0] == b"EVAL" or len(command) < 2 or command[0] in (b"SCAN", b"SCRIPT", b"MULTI", b"EXEC"):
        return ""
    first = command[1].decode("utf-8", "replace").lower()
    return ":" + re.sub(r"\|.*|[^:|]+:\d+:[0-9a-f]{12}|\d{4}-\d\d-\d\d|[0-9a-f]{16,}|\d+$", "*", first)[:40]


def faults_for(command: str) -> tuple[str, ...]:
    """In which ways a command can break: a read is never refused for what only stops writes.

    A refusal inside MULTI would make the server refuse EXEC too, which the proxy cannot play.
    """
    if command.startswith("multi"):
        return (*KILLS, *LOSSES)
    verb = command.partition(":")[0].upper()
    refusals = _ALWAYS if verb in _READS or verb == "SCRIPT" else tuple(REFUSALS)
    if verb != "BLMOVE":
        refusals = tuple(code for code in refusals if code != "UNBLOCKED")
    return (*KILLS, *LOSSES, *refusals)


def points_of(scenario: str, names: Sequence[str]) -> list[Point]:
    """Every point of a scenario that sent these commands."""
    sent = Counter(names)
    return [
        Point(scenario, command, number, fault)
        for command, count in sent.items()
        for number in range(1, min(count, MAX_OCCURRENCES) + 1)
        for fault in faults_for(command)
    ]


def predicate(point: Point) -> Predicate:
    namer = Namer()
    return lambda command: namer.name(command) == point.command


def action(point: Point, pid: Callable[[], int]) -> Action:
    """What happens at a point."""
    makers: dict[str, Callable[[], Action]] = {
        "kill-before": lambda: Kill.before(pid),
        "kill-after": lambda: Kill.after(pid),
        "request-lost": LoseRequest,
        "answer-lost": LoseReply,
        "answer-cut": lambda: CutReply(after=2),
    }
    make = makers.get(point.fault)
    return make() if make else Answer(REFUSALS[point.fault])
