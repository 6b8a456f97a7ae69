"""Lua scripts that ship with the package: one file, one act.

EVALSHA is sent; on NOSCRIPT (a restarted or flushed server) the source is sent once with EVAL, which also caches it
again. NOSCRIPT means that nothing was applied, so this is no retry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from .connection import Argument, Redis, Session
from .errors import RedisRefused


class Script:
    """One Lua script. Made at import by the storage module that owns its keys; holds text and digest, no connection.

    `package` and `name` say where the file is: `Script("wurk_django.storage", "bury", "trim")` is storage/lua/bury.lua
    with the functions of storage/lua/trim.lua before it.
    """

    def __init__(self, package: str, name: str, *functions: str) -> None:
        self.name = name
        folder = resources.files(package).joinpath("lua")
        self.source = b"\n".join(folder.joinpath(f"{part}.lua").read_bytes() for part in (*functions, name))
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def run(
        self, redis: Redis, keys: Sequence[Argument], arguments: Sequence[Argument] = (), *, idempotent: bool = False
    ) -> Any:
        """Run the script as a block of its own; its head says what goes in and comes out."""
        return redis.run(lambda session: self.run_on(session, keys, arguments), idempotent=idempotent)

    def run_on(self, session: Session, keys: Sequence[Argument], arguments: Sequence[Argument] = ()) -> Any:
        """Run the script on a connection in use."""
        try:
            return session.execute("EVALSHA", self.sha, len(keys), *keys, *arguments)
        except RedisRefused as refusal:
            if refusal.code != "NOSCRIPT":
                raise
        return session.execute("EVAL", self.source, len(keys), *keys, *arguments)

    def run_many(
        self,
        redis: Redis,
        calls: Sequence[tuple[Sequence[Argument], Sequence[Argument]]],
        *,
        idempotent: bool = False,
    ) -> list[Any]:
        """Run the script for several (keys, arguments), pipelined. Replies in order; refusals stand in their place.

        Of calls that a flushed server refused with NOSCRIPT only those are sent again.
        """

        def block(session: Session) -> list[Any]:
            replies = session.pipeline(("EVALSHA", self.sha, len(keys), *keys, *args) for keys, args in calls)
            missed = [
                index
                for index, reply in enumerate(replies)
                if isinstance(reply, RedisRefused) and reply.code == "NOSCRIPT"
            ]
            again = session.pipeline(
                ("EVAL", self.source, len(calls[index][0]), *calls[index][0], *calls[index][1]) for index in missed
            )
            for index, reply in zip(missed, again, strict=True):
                replies[index] = reply
            return replies

        return redis.run(block, idempotent=idempotent)
