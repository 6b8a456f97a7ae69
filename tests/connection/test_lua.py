"""The rules for scripts, read out of their source: fixed text, declared keys, a head that is the contract."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from tests.support.faults import named
from tests.support.proxy import Proxy
from wurk_django.config import Options
from wurk_django.connection import Redis
from wurk_django.storage import leader, orphans, processes, queues, sorted_sets
from wurk_django.storage.queues import Ack, Lane

ROOT = Path(__file__).resolve().parents[2] / "wurk_django"
LUA = sorted(ROOT.rglob("*.lua"))
SHARED = {"trim"}  # functions for other scripts; no act of their own
#: The promoter builds one key: the queue's name stands in the payload (docs/spec/reliability.md §7.2).
BUILDS_A_KEY = {"promote"}
OPTIONS = Options()
LANES = [Lane(name, f"queue:{name}", f"queue:{name}|h|1|n|0") for name in "ab"]
ACKS = [Ack(LANES[0].private, "super_fetch:recovered:a", b"x")] * 3

acts = pytest.mark.parametrize("path", [path for path in LUA if path.stem not in SHARED], ids=lambda path: path.stem)


def head(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    start = 1 if lines[0].startswith("#!") else 0
    return [line[3:] for line in lines[start : next(i for i in range(start, len(lines)) if lines[i][:2] != "--")]]


def code(path: Path) -> str:
    """The source without comments and without the text inside of quotes."""
    text = "\n".join(re.sub(r"(^|\s)--.*", "", line) for line in path.read_text().splitlines())
    return re.sub(r"'[^'\n]*'", "''", text)


def raw_code(path: Path) -> str:
    return "\n".join(re.sub(r"(^|\s)--.*", "", line) for line in path.read_text().splitlines())


def script_calls() -> Iterator[tuple[Path, list[str]]]:
    """Every `Script(package, name, …)` of the package."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Script":
                arguments = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                assert len(arguments) == len(node.args), f"{path}: a script is named by texts"
                yield path, [str(argument) for argument in arguments]


def test_there_are_scripts() -> None:
    assert len(LUA) >= 10


@acts
def test_the_head_says_purpose_keys_arguments_result_and_why(path: Path) -> None:
    lines = head(path)
    assert re.match(r"[A-Z].*\.$", lines[0]) or lines[0].endswith(","), "the first line is the purpose"
    text = "\n".join(lines)
    assert re.search(r"^KEYS\[1\] ", text, re.MULTILINE)
    assert re.search(r"^ARGV\[[1…]\] ", text, re.MULTILINE)
    assert re.search(r"^Returns ", text, re.MULTILINE)
    assert re.search(r"^Why a script: ", text, re.MULTILINE)


@acts
@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_every_key_and_argument_that_is_used_is_declared_and_the_other_way_round(table: str, path: Path) -> None:
    lines = "\n".join(head(path))
    declared = set(re.findall(rf"^{table}\[(\d+)\]", lines, re.MULTILINE))
    many = f"{table}[…]" in lines
    used = set(re.findall(rf"{table}\[(\d+)\]", raw_code(path)))
    assert used <= declared
    if not many:
        assert declared == used
        assert re.findall(rf"{table}\[[^\d]", raw_code(path)) == []
        assert f"#{table}" not in raw_code(path)


@pytest.mark.oracle("safety:S-62")
@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_keys_come_from_outside_and_are_not_built(path: Path) -> None:
    text = code(path)
    for match in re.finditer(r"redis\.p?call\('',\s*([^,)]+)", text):
        key = match[1].strip()
        assert ".." not in key
        assert re.fullmatch(r"KEYS\[[^\]]+\]|(?:unpack\()?[a-z_]+|''", key), key
    names = set(re.findall(r"local (\w+) = [^\n]*\.\.", text))
    built = {name for name in names if re.search(rf"redis\.p?call\('',\s*{name}\b", text)}
    assert built == ({"key"} if path.stem in BUILDS_A_KEY else set())


@pytest.mark.oracle("safety:S-62")
@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_a_script_runs_no_text_and_walks_no_keyspace(path: Path) -> None:
    assert not re.search(r"\b(?:loadstring|load|dofile|require|setfenv|getfenv|rawset)\s*\(", code(path))
    assert not re.search(r"'(?:KEYS|SCAN|[HSZ]SCAN|EVAL|FLUSHALL|FLUSHDB|SMEMBERS|HGETALL)'", raw_code(path))


@pytest.mark.oracle("safety:S-62")
def test_no_script_text_is_put_together_in_python() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if path.name != "script.py":
            assert not re.search(r"""["'](?:EVAL|EVALSHA|SCRIPT|FCALL)["']""", text), path
        assert not re.search(r"redis\.p?call\(", text), path


def test_every_script_is_made_somewhere_and_every_name_has_a_file() -> None:
    made = {name for _, arguments in script_calls() for name in arguments[1:]}
    assert made == {path.stem for path in LUA}
    for _, (package, *names) in script_calls():
        for name in names:
            assert (ROOT.parent / package.replace(".", "/") / "lua" / f"{name}.lua").exists()


def test_scripts_are_shipped_with_the_package() -> None:
    setup = (ROOT.parent / "setup.cfg").read_text()
    assert re.search(r"lua", setup)


CALLS: dict[str, Any] = {
    "dispatch": lambda pool: queues.dispatch(pool, ACKS, LANES, [1, 1], 1, OPTIONS),
    "requeue": lambda pool: queues.requeue(pool, [(LANES[0], b"x")]),
    "held": lambda pool: queues.held(pool, LANES[0], OPTIONS),
    "retry": lambda pool: sorted_sets.book_retry(pool, LANES[0], "c", b"x", b"y", 5),
    "bury": lambda pool: sorted_sets.bury(pool, LANES[0], "c", b"x", b"y", OPTIONS),
    "kill": lambda pool: sorted_sets.kill(pool, b"x", OPTIONS),
    "trim_dead": lambda pool: sorted_sets.trim_dead(pool, 5, 5),
    "promote": lambda pool: sorted_sets.promote_due(pool, "retry", OPTIONS),
    "drain": lambda pool: orphans.drain(pool, LANES[0].private, "a", "h:1:n", [b"x"], ["c"], 3),
    "bury_poison": lambda pool: orphans.bury_poison(pool, LANES[0].private, "h:1:n", "c", b"x", OPTIONS, keep=True),
    "page": lambda pool: sorted_sets.following(pool, "retry", 5.0, b"x"),
    "to_queue": lambda pool: sorted_sets.move_to_queues(pool, "retry", [sorted_sets.Move(b"x", "a", b"y")]),
    "to_dead": lambda pool: sorted_sets.move_to_dead(pool, "retry", [b"x"], OPTIONS),
    "heartbeat": lambda pool: processes.beat(pool, "h:1:n", {"info": "{}"}, {"t": b"{}"}, 60),
    "campaign": lambda pool: leader.campaign(pool, "dear-leader", "h:1:n", 30),
    "release_if_owner": lambda pool: leader.release_if_owner(pool, "dear-leader", "h:1:n"),
}


@pytest.mark.oracle("safety:S-62")
@acts
def test_the_caller_passes_as_many_keys_as_the_head_declares(
    path: Path, proxy: Proxy, through: Redis, redis: redis_py.Redis
) -> None:
    assert path.stem in CALLS, "add the call of the new script to CALLS"
    CALLS[path.stem](through)

    [call] = [command for command in proxy.commands if named("EVALSHA")(command)]
    keys, arguments = int(call[2]), len(call) - 3 - int(call[2])
    lines = "\n".join(head(path))
    declared = [int(number) for number in re.findall(r"^KEYS\[(\d+)\]", lines, re.MULTILINE)]
    assert declared == list(range(1, len(declared) + 1))
    if "KEYS[…]" not in lines:
        assert keys == max(declared) or (path.stem == "heartbeat" and keys == max(declared) - 1)
    else:
        assert keys >= max(declared)
    fixed = [int(number) for number in re.findall(r"^ARGV\[(\d+)\]", lines, re.MULTILINE)]
    assert arguments >= max(fixed, default=1)
    if "ARGV[…]" not in lines:
        assert arguments == max(fixed)


@pytest.mark.oracle("safety:S-62")
def test_a_call_changes_a_thousand_items_at_most(redis: redis_py.Redis, pool: Redis) -> None:
    raw = b'{"class":"C","args":[],"jid":"%d","queue":"q"}'
    redis.zadd("schedule", {raw % number: 1 for number in range(1500)})
    handled = sorted_sets.promote_due(pool, "schedule", OPTIONS, limit=10_000).handled
    assert handled == redis.llen("queue:q") == 1000

    redis.zadd("dead", {f"d{number}": 1 for number in range(2500)})
    assert sorted_sets.trim_dead(pool, 10, 60) == 1500

    redis.lpush(LANES[0].private, *[b"x%d" % number for number in range(1500)])
    assert len(queues.held(pool, LANES[0], OPTIONS)) == 1000
