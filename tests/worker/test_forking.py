"""What a child process makes of what its parent had built: connections, private lists, identity."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.worker.rig import enqueue, payload

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are compared by /proc")
ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys
from wurk_django.config import Config, Options
from wurk_django.connection import RedisOptions
from wurk_django.worker import identity
from wurk_django.worker.dispatcher import Dispatcher

config = Config(Options(fetch_block=0.2), RedisOptions(sys.argv[1]))
config.capsule("default", ["default"], 2)
config.freeze()
capsule = config.capsules["default"]
dispatcher = Dispatcher(capsule, 0, config.report)

def look():
    sockets = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{fd}")]
    number = capsule.redis.execute("CLIENT", "ID")
    return {"pid": os.getpid(), "identity": identity.identity(), "connection": number,
            "sockets": [name for name in sockets if name.startswith("socket:")]}

before = look()
taken = dispatcher.take()
read, write = os.pipe()
if os.fork() == 0:
    try:
        child = look()
        work = dispatcher.take()
        child["private"] = work.lane.private
        child["empty_at_first"] = dispatcher.empty is False
        dispatcher.finish(work, 0)
        dispatcher.flush()
        child["empty"] = dispatcher.empty
        os.write(write, json.dumps(child).encode())
    finally:
        os._exit(0)
os.close(write)
os.wait()
with os.fdopen(read) as answers:
    child = json.loads(answers.read())
print(json.dumps({"parent": before, "parent_again": look(), "private": taken.lane.private, "child": child}))
"""


@pytest.fixture
def told(redis: redis_py.Redis, redis_url: str) -> Any:
    """What a parent and its child saw; two jobs were on the queue."""
    enqueue(redis, "default", payload("work", 1), payload("work", 2))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, redis_url], capture_output=True, text=True, timeout=30, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.oracle("reliability:SW10", "safety:S-66", "reports:P11")
def test_the_first_command_of_a_child_goes_over_a_connection_of_its_own(told: Any) -> None:
    assert told["child"]["connection"] != told["parent"]["connection"]
    assert told["parent_again"]["connection"] == told["parent"]["connection"], "the parent's is still good"


@pytest.mark.oracle("reliability:F10")
def test_a_dispatcher_built_in_a_parent_claims_for_the_child_that_uses_it(told: Any, redis: redis_py.Redis) -> None:
    parent, child = told["parent"], told["child"]
    assert f"|{parent['pid']}|" in told["private"]
    assert f"|{child['pid']}|" in child["private"]
    assert child["empty_at_first"]
    assert child["empty"], "what the parent holds is not the child's"
    assert redis.llen(told["private"]) == 1, "the parent's claim is untouched"
    assert redis.llen(child["private"]) == 0


def test_a_child_keeps_the_nonce_and_has_a_pid_of_its_own(told: Any) -> None:
    mine, its = told["parent"]["identity"].split(":"), told["child"]["identity"].split(":")
    assert its[-1] == mine[-1]
    assert its[-2] != mine[-2]
