"""Whose private list is it? Names of private lists, read and built (docs/spec/reliability.md §5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .. import keys
from ..config import Config
from ..storage.processes import Process
from . import identity

MAX_BUILT = 10_000  # names built from what one heartbeat tells
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Owner:
    """Who a private list belongs to. `nonce` is empty for the older key shape."""

    queue: str
    host: str
    pid: int
    nonce: str

    @property
    def identity(self) -> str:
        """Its name in the process set; only host and pid for the older shape."""
        return f"{self.host}:{self.pid}:{self.nonce}" if self.nonce else f"{self.host}:{self.pid}"

    @property
    def is_of_our_tree(self) -> bool:
        """A process forked from the same parent as this one, or this one."""
        return self.nonce == identity.NONCE and self.host == identity.host()


def read_owner(key: str, queue_name: str) -> Owner | None:
    """The owner of a private list of a known queue; None when the key has another shape.

    `queue:<q>|<host>|<pid>|<nonce>|<idx>`, or without the nonce. Exactly so many segments: a queue named `q|x` must
    not have its lists taken for those of `q`.
    """
    prefix = keys.queue(queue_name) + "|"
    if not key.startswith(prefix):
        return None
    return _read_tail(queue_name, key[len(prefix) :].split("|"))


def read_any_owner(key: str) -> Owner | None:
    """The owner of a private list of any queue: the tail is read from the right, the longer shape first."""
    segments = key.removeprefix(keys.QUEUE_PREFIX).split("|") if key.startswith(keys.QUEUE_PREFIX) else []
    for width in (4, 3):
        queue_name = "|".join(segments[:-width])
        owner = _read_tail(queue_name, segments[-width:]) if queue_name else None
        if owner is not None:
            return owner
    return None


def lists_of_child(config: Config, pid: int) -> Iterator[tuple[str, Owner]]:
    """The private lists of a process of our tree with this configuration."""
    host = identity.host()
    for index, capsule in enumerate(config.capsules.values()):
        for name in capsule.queues.names:
            yield keys.private_list(name, host, pid, identity.NONCE, index), Owner(name, host, pid, identity.NONCE)


def lists_of(process: Process) -> list[tuple[str, Owner]]:
    """The private lists that a process may have, by what its heartbeat told. None for a name that we do not read."""
    host, _, rest = process.identity.rpartition(":")[0].rpartition(":")
    nonce = process.identity.rpartition(":")[2]
    if not host or not nonce or not _NUMBER.fullmatch(rest):
        return []
    capsules = process.info.get("capsules")
    count = len(capsules) if isinstance(capsules, dict) and capsules else 1
    named = ((queue, index) for queue in process.queues for index in range(count))
    found = []
    for queue, index in named:
        found.append((keys.private_list(queue, host, int(rest), nonce, index), Owner(queue, host, int(rest), nonce)))
        if len(found) >= MAX_BUILT:
            break
    return found


def _read_tail(queue_name: str, tail: list[str]) -> Owner | None:
    if len(tail) == 4 and _NUMBER.fullmatch(tail[1]) and _NUMBER.fullmatch(tail[3]):
        return Owner(queue_name, tail[0], int(tail[1]), tail[2])
    if len(tail) == 3 and _NUMBER.fullmatch(tail[1]) and _NUMBER.fullmatch(tail[2]):
        return Owner(queue_name, tail[0], int(tail[1]), "")
    return None
