"""A program that forks while its threads talk to Redis: `forking.py URL CHILDREN`.

Parent and children ask Redis to echo tags of their own, through the same pool object. Prints, as JSON: answers that
belonged to another question, sockets of the parent that a child still had, sockets that a child shared with the parent,
children that did not end, the jids and random numbers that children made.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from wurk_django.client import Client
from wurk_django.config import Config
from wurk_django.connection import Redis, RedisOptions, Session

THREADS = 3
ASKS = 30
CHILD_PATIENCE_S = 20


def echo(pool: Redis, tag: str, crossed: list[str]) -> None:
    answers = [pool.execute("ECHO", tag), *pool.pipeline([("ECHO", f"{tag} a"), ("ECHO", f"{tag} b")])]
    if answers != [tag.encode(), f"{tag} a".encode(), f"{tag} b".encode()]:
        crossed.append(f"{tag}: {answers!r}")


def inode(session: Session) -> int:
    return os.fstat(session._connection._sock.fileno()).st_ino


def open_sockets() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.stat(f"/proc/self/fd/{name}").st_ino)
        except OSError:
            continue
    return found


def in_child(config: Config, parents: set[int], number: int) -> dict[str, Any]:
    """What a forked child does: it reports, it never raises."""
    pool = config.redis
    inherited = parents & open_sockets()
    crossed: list[str] = []

    def talk(thread: int) -> None:
        for count in range(ASKS):
            echo(pool, f"child {os.getpid()} {thread} {count}", crossed)

    threads = [threading.Thread(target=talk, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    jid = Client(config).push({"class": "Forked", "args": [number]})
    mine = pool.run(inode)
    for thread in threads:
        thread.join(CHILD_PATIENCE_S)
    return {
        "crossed": crossed,
        "inherited": sorted(inherited),
        "shared": [mine] if mine in parents else [],
        "stuck": [thread.name for thread in threads if thread.is_alive()],
        "jid": jid,
        "random": random.random(),
    }


def fork(act: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Run `act` in a child; the function that is returned waits for its report."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            report = json.dumps(act())
        except BaseException as error:
            report = json.dumps({"error": repr(error)})
        os.write(writing, report.encode())
        os._exit(0)
    os.close(writing)

    def wait() -> dict[str, Any]:
        with os.fdopen(reading, "rb") as pipe:
            report: dict[str, Any] = json.loads(pipe.read() or b'{"error": "died"}')
        os.waitpid(pid, 0)
        return report

    return wait


def main(url: str, children: int) -> None:
    config = Config(redis=RedisOptions(url))
    pool = config.redis
    crossed: list[str] = []
    done = threading.Event()
    asked = [0]

    def hammer(thread: int) -> None:
        count = 0
        while not done.is_set():
            count += 1
            echo(pool, f"parent {thread} {count}", crossed)
            asked[0] += 1

    threads = [threading.Thread(target=hammer, args=(thread,), daemon=True) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    while asked[0] < 50:
        time.sleep(0.001)

    reports = []
    for start in range(0, children, 4):
        waiting = []
        for number in range(start, min(start + 4, children)):
            sockets = {os.fstat(link._sock.fileno()).st_ino for link in list(pool._opened) if link._sock is not None}
            waiting.append(fork(lambda sockets=sockets, number=number: in_child(config, sockets, number)))
        reports += [wait() for wait in waiting]

    # And once in the middle of a block: the child leaves the connection alone and its pool works.
    def block(session: Session) -> dict[str, Any]:
        session.execute("ECHO", "before")
        report = fork(lambda: in_child(config, {inode(session)} if session._connection._sock else set(), -1))()
        if session.execute("ECHO", "after") != b"after":
            crossed.append("after the fork inside a block")
        return report

    reports.append(pool.run(block))
    seen = asked[0]
    time.sleep(0.05)
    done.set()
    for thread in threads:
        thread.join(10)
    print(
        json.dumps(
            {
                "crossed": crossed,
                "children": reports,
                "parent went on": asked[0] > seen,
                "stuck": [thread.name for thread in threads if thread.is_alive()],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
