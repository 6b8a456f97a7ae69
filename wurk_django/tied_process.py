"""Child processes that end with us, however we end.

For the embedded server and the tests' own servers. On Linux the kernel sees to it, even after SIGKILL; elsewhere a
normal exit does.
"""

from __future__ import annotations

import atexit
import functools
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

EXIT_TIMEOUT_S = 10.0  # how long our own exit waits for theirs

# Asks the kernel for a signal when its parent ends (PR_SET_PDEATHSIG = 1), then becomes the program.
_TIE = """
import os, sys
owner, signum = int(sys.argv[1]), int(sys.argv[2])
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signum)
except Exception:
    pass
if os.getppid() == owner:
    os.execv(sys.argv[3], sys.argv[3:])
"""

Process = subprocess.Popen[bytes]

not_for_forks: set[int] = set()  # descriptors that os.fork() must not duplicate: closed in the child

_owned: dict[Process, int] = {}  # with the signal that ends it
_orders: queue.SimpleQueue[Callable[[], None]] | None = None
_mutex = threading.Lock()


def spawn(argv: Sequence[str], *, signum: int = signal.SIGTERM, **options: Any) -> Process:
    """Start a program that gets `signum` when this process ends.

    It runs in a session of its own: Ctrl-C is for us, and our jobs need the server until they have finished.
    `options` are those of Popen (Any, because Popen checks them).
    """
    python = _python() if sys.platform == "linux" else None
    if python:
        argv = [python, "-I", "-S", "-c", _TIE, str(os.getpid()), str(int(signum)), *argv]
    start = functools.partial(_start, argv, options)
    process = start() if _thread_lasts() else _in_lasting_thread(start)
    with _mutex:
        for other in list(_owned):
            if other.poll() is not None:
                del _owned[other]
        _owned[process] = signum
    return process


def owns(pid: int) -> bool:
    """Is this one of the processes that `spawn` has started?"""
    with _mutex:
        return any(process.pid == pid for process in _owned)


def _start(argv: Sequence[str], options: dict[str, Any]) -> Process:
    return subprocess.Popen(argv, start_new_session=True, **options)


def _python() -> str | None:
    """An interpreter. Not always sys.executable: that is the web server itself when it embeds Python."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [sys.executable, os.path.join(sys.base_exec_prefix, "bin", name)]
    return next((path for path in candidates if re.match("python|pypy", os.path.basename(path or ""))), None)


def _thread_lasts() -> bool:
    # To the kernel the parent is a thread, and its end counts. Only the first thread lasts as long as the process.
    return sys.platform != "linux" or threading.get_native_id() == os.getpid()


def _in_lasting_thread(start: Callable[[], Process]) -> Process:
    global _orders
    with _mutex:
        if _orders is None:
            _orders = queue.SimpleQueue()
            threading.Thread(target=_work, args=[_orders], name="tied-process", daemon=True).start()
        orders = _orders
    outcome: queue.SimpleQueue[Process | Exception] = queue.SimpleQueue()

    def order() -> None:
        try:
            outcome.put(start())
        except Exception as error:  # raised again in the thread that asked
            outcome.put(error)

    orders.put(order)
    result = outcome.get()
    if isinstance(result, Exception):
        raise result
    return result


def _work(orders: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        orders.get()()


def _end_owned() -> None:
    for process, signum in _owned.items():
        process.send_signal(signum)
    for process in _owned:
        try:
            process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _forget() -> None:
    """In a forked child: what is the parent's is let go."""
    global _orders, _mutex
    for descriptor in not_for_forks:
        os.close(descriptor)
    for process in _owned:
        process.returncode = 0  # left unset, its destructor would complain about a running child
    not_for_forks.clear()
    _owned.clear()
    _orders, _mutex = None, threading.Lock()


atexit.register(_end_owned)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
