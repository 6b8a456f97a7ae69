"""What a type checker makes of the public face: arguments of jobs are checked as those of the function."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.django.conftest import CHECKOUT

pytest.importorskip("mypy")

CODE = """
from wurk_django import Job, current_job, job

@job
def add(left: int, right: int = 2) -> int:
    return left + right

@job(queue="mail", retry=5)
def send(user_id: int) -> None: ...

class Charge(Job, queue="critical"):
    def perform(self, user_id: int) -> None:
        reveal_type(self.jid)  # str

reveal_type(add(1))  # int
reveal_type(add.perform_async(1, right=3))  # str | None
reveal_type(add.delay(1))  # str | None
reveal_type(send.perform_bulk([[1]]))  # list[str | None]
reveal_type(send.set(queue="low").perform_in(60, 1))  # str | None
reveal_type(Charge.perform_async(1))  # str | None
add.perform_async("x")  # arg-type
send.perform_async(1, 2)  # call-arg
add("x")  # arg-type
async def later() -> None:
    reveal_type(await add.aperform_async(1))  # str | None
    await send.aperform_async("x")  # arg-type
found = current_job()
found.jid  # union-attr
"""


def test_jobs_are_typed_as_their_functions(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(CODE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent", "snippet.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(CHECKOUT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = {
        int(line): revealed or code
        for line, revealed, code in re.findall(
            r'^snippet\.py:(\d+): (?:note: Revealed type is "(.*)"|error: .*\[(.*)\])$', done.stdout, re.MULTILINE
        )
    }
    wanted = {
        number: line.rpartition("# ")[2] for number, line in enumerate(CODE.splitlines(), start=1) if "  # " in line
    }
    assert told == wanted, done.stdout + done.stderr
