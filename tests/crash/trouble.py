"""What can be wrong with a Redis server: each way begins with a call and ends with the call that it returns."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable

import redis as redis_py

from tests.crash.harness import Stage
from tests.support.processes import eventually
from tests.support.servers import RedisServer

End = Callable[[], object]
Begin = Callable[[RedisServer, Stage], End]


def again_and_again(act: Callable[[], object], every_s: float) -> End:
    """Do it now and every so often, until the returned function is called."""
    done = threading.Event()

    def repeat() -> None:
        while True:
            with contextlib.suppress(redis_py.RedisError):
                act()
            if done.wait(every_s):
                return

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()

    def end() -> None:
        done.set()
        thread.join(10)

    return end


def stopped(server: RedisServer, _stage: Stage) -> End:
    server.stop()
    return server.start


def killed(server: RedisServer, _stage: Stage) -> End:
    server.kill()
    return server.start


def frozen(server: RedisServer, _stage: Stage) -> End:
    server.pause()
    return server.resume


def emptied(server: RedisServer, stage: Stage) -> End:
    """Restarted without its data. Nothing may be in it that a test still wants."""
    server.restart(kill=True, empty=True)
    return lambda: None


def loading(server: RedisServer, stage: Stage) -> End:
    """It answers LOADING to everything, PING included, for about three seconds."""
    names = [f"foreign:{number}" for number in range(3000)]
    with stage.redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, b"x" * 64)
        pipe.execute()
    server.config |= {"key-load-delay": "1000", "loading-process-events-interval-bytes": "1024"}
    server.kill()
    server.start(wait=False)

    def end() -> None:
        server.wait_until_ready()
        server.config["key-load-delay"] = "0"
        with server.client() as client:
            client.delete(*names)

    return end


def readonly(_server: RedisServer, stage: Stage) -> End:
    """A demoted primary: it has its data and takes no writes."""
    stage.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    return lambda: stage.redis.execute_command("REPLICAOF", "NO", "ONE")


def without_replicas(server: RedisServer, _stage: Stage) -> End:
    server.config_set(min_replicas_to_write=1)
    return lambda: server.config_set(min_replicas_to_write=0)


def full(server: RedisServer, _stage: Stage) -> End:
    server.config_set(maxmemory=1)
    return lambda: server.config_set(maxmemory=0)


def unable_to_save(server: RedisServer, stage: Stage) -> End:
    """Its snapshots fail, for something stands where they go: MISCONF to every write and to PING."""
    server.config_set(save="3600 1000000")
    obstacle = server.directory / "dump.rdb"
    obstacle.unlink(missing_ok=True)
    (obstacle / "in").mkdir(parents=True)
    with contextlib.suppress(redis_py.ResponseError):
        stage.redis.bgsave()
    eventually(lambda: stage.redis.info("persistence")["rdb_last_bgsave_status"] == "err", 10, "a failed save")

    def end() -> None:
        shutil.rmtree(obstacle)
        stage.redis.bgsave()
        eventually(lambda: stage.redis.info("persistence")["rdb_last_bgsave_status"] == "ok", 10, "a save")

    return end


def busy(server: RedisServer, _stage: Stage) -> End:
    """A script runs away: BUSY to everything."""
    server.config_set(busy_reply_threshold=50)

    def run_away() -> None:
        with server.client(timeout=120) as client, contextlib.suppress(redis_py.RedisError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run_away, daemon=True)
    thread.start()

    def end() -> None:
        with server.client() as client:
            client.script_kill()
        thread.join(10)

    return end


def scripts_flushed(_server: RedisServer, stage: Stage) -> End:
    return again_and_again(stage.redis.script_flush, 0.2)


def clients_killed(_server: RedisServer, stage: Stage) -> End:
    return again_and_again(
        lambda: stage.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), 0.3
    )


def clients_unblocked(_server: RedisServer, stage: Stage) -> End:
    def act() -> None:
        for client in stage.redis.client_list():
            if client["cmd"] == "blmove":
                stage.redis.execute_command("CLIENT", "UNBLOCK", client["id"], "ERROR")

    return again_and_again(act, 0.2)


def idle_clients_closed(server: RedisServer, _stage: Stage) -> End:
    server.config_set(timeout=1)
    return lambda: server.config_set(timeout=0)


def out_of_clients(server: RedisServer, stage: Stage) -> End:
    """Every connection is taken by somebody else, and the worker has lost its own."""
    server.config_set(maxclients=40)
    stage.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    taken: list[socket.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(60):
            taken.append(socket.create_connection(("127.0.0.1", server.port), 1))
            taken[-1].sendall(b"PING\r\n")

    def end() -> None:
        for sock in taken:
            sock.close()

        def raise_limit() -> bool:
            with contextlib.suppress(redis_py.RedisError):
                server.config_set(maxclients=10_000)
                return True
            return False

        eventually(raise_limit, 5, "a connection of our own")

    return end


def refused(_server: RedisServer, stage: Stage) -> End:
    stage.proxy.refuse = True
    stage.proxy.reset_all()

    def end() -> None:
        stage.proxy.refuse = False

    return end


def partitioned(direction: str) -> Begin:
    def begin(_server: RedisServer, stage: Stage) -> End:
        stage.proxy.black_hole(direction)
        return stage.proxy.heal

    begin.__name__ = f"partitioned_{direction}"
    return begin


def flapping(_server: RedisServer, stage: Stage) -> End:
    """Away for half a second out of every second."""

    def act() -> None:
        stage.proxy.refuse = True
        stage.proxy.reset_all()
        time.sleep(0.5)
        stage.proxy.refuse = False

    return again_and_again(act, 0.5)
