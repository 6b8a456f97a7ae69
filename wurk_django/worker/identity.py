"""Who this process is: `<host>:<pid>:<nonce>`.

The nonce is made once, when this module is imported; forked children keep it, so that the pid tells them apart and
the whole tree knows its own (docs/spec/reliability.md §0).
"""

from __future__ import annotations

import os
import socket
import threading

from .. import keys

NONCE = os.urandom(6).hex()
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def host() -> str:
    """The dyno or host name; a pipe in it would break the names of private lists."""
    return (os.environ.get("DYNO") or socket.gethostname()).replace("|", "-")


def identity(pid: int | None = None) -> str:
    """The name of this process in the process set, or of another one of its tree."""
    return f"{host()}:{pid or os.getpid()}:{NONCE}"


def private_list(queue_name: str, capsule: int) -> str:
    """This process's private list for a queue, one for each capsule that serves it."""
    return keys.private_list(queue_name, host(), os.getpid(), NONCE, capsule)


def thread_id() -> str:
    """A short name for the calling thread: base 36 of its ident and the pid."""
    number = threading.get_ident() ^ os.getpid()
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return digits or "0"
