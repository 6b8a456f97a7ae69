from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from tests.crash.ledger import Ledger
from tests.enumerator import __main__ as command
from tests.enumerator.balance import Snapshot, complaints, final_complaints, repeat_complaints, repeats
from tests.enumerator.lab import Lab
from tests.enumerator.points import KILLS, Point, faults_for, points_of
from tests.enumerator.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """One job ended, one only started."""
    (tmp_path / "ledger").write_text("start a None 1 1\nend a None 1 2\nstart b None 1 3\n")
    return Ledger(tmp_path / "ledger")


def test_there_are_enough_scenarios_and_no_name_twice() -> None:
    names = [scenario.name for scenario in SCENARIOS]

    assert len(set(names)) == len(names) >= 40


# One of each kind of fault, each where it hurts.
@pytest.mark.oracle("safety:K1")
@pytest.mark.parametrize("fault", ["kill-before", "kill-after", "answer-lost", "READONLY"])
def test_a_push_that_breaks_leaves_one_job_or_none(fault: str, lab: Lab) -> None:
    verdict = lab.run(Point("push", "lpush:queue:default", 1, fault))

    assert verdict.reached
    assert not verdict.complaints


@pytest.mark.oracle("safety:K7", "safety:K22", "reliability:A15", "reliability:R14")
@pytest.mark.parametrize(
    "text",
    [
        "run-one/dispatch:claim#1/kill-after",
        "run-one/dispatch:claim#1/answer-lost",
        "fail-once/retry#1/kill-before",
        "fail-once/retry#1/kill-after",
        "last-failure/bury#1/kill-before",
        "last-failure/bury#1/kill-after",
        "reap-one/drain#1/kill-before",
        "reap-one/drain#1/kill-after",
        "reap-one/drain#1/answer-lost",
        "stop-one-running/requeue#1/request-lost",
    ],
)
def test_a_broken_move_leaves_each_job_in_one_place_and_its_run_to_another(text: str, lab: Lab) -> None:
    verdict = lab.run(Point.parse(text))

    assert verdict.reached
    assert not verdict.complaints


@pytest.mark.oracle("safety:G16")
def test_a_worker_killed_while_it_counts_leaves_no_statistic_of_a_day_that_never_expires(lab: Lab) -> None:
    verdict = lab.run(Point("run-one", "multi-expire:stat:processed:*", 1, "kill-before"))

    assert verdict.reached
    assert not verdict.complaints


def test_a_server_that_is_busy_at_the_last_check_before_the_start_is_a_plain_message(lab: Lab) -> None:
    verdict = lab.run(Point("burst", "hexists:*", 1, "BUSY"))

    assert verdict.reached
    assert not verdict.complaints


def test_a_scenario_is_recorded_with_the_scripts_by_their_names(lab: Lab) -> None:
    recording = lab.record("fail-once")

    assert not recording.complaints
    assert {"heartbeat", "dispatch:claim", "retry"} <= set(recording.names)


def test_a_point_is_found_again_by_its_name() -> None:
    for point in points_of("run-one", ["dispatch:ack:claim", "dispatch:ack:claim", "ping"]):
        assert Point.parse(str(point)) == point


def test_a_loop_is_broken_in_its_first_rounds_only() -> None:
    assert {point.number for point in points_of("run-one", ["ping"] * 10)} == {1, 2, 3}


def test_a_read_is_not_refused_for_what_stops_writes() -> None:
    assert "OOM" in faults_for("zadd:retry")
    assert "OOM" not in faults_for("llen:queue:default")
    assert set(KILLS) <= set(faults_for("multi-incrby:stat:processed"))
    assert "BUSY" not in faults_for("multi-incrby:stat:processed")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_chooses_the_same_points(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "push", "--share", "5", "--list", "--lanes", "1", "--seed", str(seed)]

    chosen = []
    for _ in range(2):
        assert command.main(arguments) == 0
        chosen.append(capsys.readouterr().out.splitlines()[-5:])

    assert chosen[0] == chosen[1]


# --- the books --------------------------------------------------------------------------------------------------------


def test_a_job_that_stands_nowhere_and_never_ended_is_lost(ledger: Ledger) -> None:
    assert complaints(Snapshot(), ledger, {"a"}) == []
    assert "b is lost" in complaints(Snapshot(), ledger, {"a", "b"})[0]


def test_a_job_in_two_places_is_told(ledger: Ledger) -> None:
    snapshot = Snapshot({"b": ["retry", "queue:default|host|1|abc|0"]})

    assert "held 2 times" in complaints(snapshot, ledger, {"b"})[0]


def test_a_counter_below_zero_is_told(ledger: Ledger) -> None:
    assert complaints(Snapshot(counters={"stat:processed": -1}), ledger, ()) == ["stat:processed is -1"]


def test_in_the_end_nothing_waits_and_nothing_lasts(ledger: Ledger) -> None:
    snapshot = Snapshot({"b": ["retry"], "a": ["dead"]}, lasting=frozenset({"retry", "stat:processed:2026-01-01"}))

    assert final_complaints(snapshot, ledger, {"a", "b"}) == [
        "b still stands in ['retry']",
        "a is dead and done",
        "stat:processed:2026-01-01 has no time to live",
    ]


def test_repeats_are_told_beyond_the_budget_and_of_jobs_that_the_fault_did_not_hold(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("start a None 1 1\nstart a None 2 2\nstart b None 1 3\nstart b 0 1 4\n")
    repeated = repeats(Ledger(tmp_path / "ledger"))

    assert repeated == {"a": 1}
    assert repeat_complaints(repeated, 1, {"a"}) == []
    assert "1 repeats, at most 0" in repeat_complaints(repeated, 0, None)[0]
    assert "a ran again" in repeat_complaints(repeated, 1, set())[0]


def test_a_snapshot_tells_places_counters_and_what_lasts(redis: redis_py.Redis) -> None:
    redis.lpush("queue:default|host|1|abc|0", b'{"jid":"a"}')
    redis.zadd("dead", {b"no json": 1})
    redis.set("stat:failed", 3)
    redis.set("fleeting", 1, ex=10)

    snapshot = Snapshot.take(redis)

    assert snapshot.held("a")
    assert snapshot.places["raw-" + b"no json".hex()] == ["dead"]
    assert snapshot.counters == {"stat:failed": 3}
    assert snapshot.lasting == {"queue:default|host|1|abc|0", "dead", "stat:failed"}
