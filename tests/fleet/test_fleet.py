"""Real children under a real parent: killed, quieted, replaced, orphaned. None of their jobs is lost."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.fleet.conftest import Fleet, Fleets, is_there
from tests.support.processes import eventually

pytestmark = pytest.mark.crash

ORPHANS_ARE_GONE_S = 5.0


@pytest.mark.oracle("safety:K25", "safety:G4")
def test_a_killed_child_comes_back_its_jobs_run_elsewhere_and_the_others_notice_nothing(stage: Fleets) -> None:
    # given: three children, each in the middle of a job
    fleet = stage.fleet(3, concurrency=1)
    jids = stage.hold(3)
    victim = stage.pid_of(jids[0])
    others = [pid for pid in fleet.children if pid != victim]
    # when
    killed_at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    # then: its job is back within moments, long before its heartbeat has lapsed
    eventually(lambda: stage.redis.llen("queue:default") == 1, 2, lambda: f"the job's return\n{fleet.output}")
    assert time.monotonic() - killed_at < 2
    replaced = fleet.wait_until(3)
    assert time.monotonic() - killed_at < 4
    assert set(others) < set(replaced)
    stage.open_gate("go")
    stage.wait_until_done(jids)
    assert len(stage.ledger.entries("start")) == 4, "only the job of the killed child has started twice"
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.oracle("safety:K25", "reliability:SW7")
def test_children_of_a_killed_parent_give_their_jobs_back_and_are_gone_within_five_seconds(stage: Fleets) -> None:
    fleet = stage.fleet(2, options={"timeout": 25})
    short = stage.hold(1)
    long = stage.push("Long")
    eventually(lambda: long in stage.ledger.jids("start"), 10, "the start of the long job")
    children = fleet.children

    fleet.process.kill()
    killed_at = time.monotonic()
    stage.open_gate("go")
    eventually(lambda: not any(map(is_there, children)), ORPHANS_ARE_GONE_S, lambda: f"the end of all\n{fleet.output}")

    assert time.monotonic() - killed_at < ORPHANS_ARE_GONE_S
    assert short[0] in stage.ledger.jids("end"), "what could finish has finished"
    assert stage.where(long) == ["queue:default"]


@pytest.mark.oracle("safety:K25")
def test_a_parent_killed_during_its_stop_leaves_no_children_either(stage: Fleets) -> None:
    fleet = stage.fleet(2, options={"timeout": 25})
    long = stage.push("Long")
    eventually(lambda: long in stage.ledger.jids("start"), 10, "the start of the long job")
    holder = stage.pid_of(long)
    fleet.send(signal.SIGTERM)
    eventually(lambda: fleet.children == [holder], 10, "the end of the idle child")

    fleet.process.kill()

    eventually(lambda: not is_there(holder), ORPHANS_ARE_GONE_S, "the end of the busy child")
    assert stage.where(long) == ["queue:default"]


@pytest.mark.oracle("safety:K25")
def test_when_parent_and_child_are_killed_together_the_next_fleet_has_all_jobs(stage: Fleets) -> None:
    fleet = stage.fleet(2, concurrency=1)
    jids = stage.hold(2)
    children = fleet.children

    os.kill(children[0], signal.SIGKILL)
    fleet.process.kill()
    eventually(lambda: not any(map(is_there, children)), ORPHANS_ARE_GONE_S, "the end of all")
    stage.open_gate("go")
    stage.fleet(2, options={"reaper_grace": 1, "reaper_interval": 1})

    stage.wait_until_done(jids)


@pytest.mark.oracle("reliability:SW4")
def test_what_replaces_a_crashed_child_of_a_quiet_fleet_is_quiet_too(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    fleet.send(signal.SIGTSTP)
    eventually(lambda: [quiet(fleet, pid) for pid in fleet.beating()] == [b"true"] * 2, 10, "quiet children")
    jid = stage.push("Work")

    os.kill(fleet.children[0], signal.SIGKILL)
    eventually(lambda: len(fleet.beating()) == 2, 10, "the replacement")

    assert [quiet(fleet, pid) for pid in fleet.beating()] == [b"true"] * 2
    time.sleep(0.5)  # a claim would have come by then
    assert stage.where(jid) == ["queue:default"]
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def quiet(fleet: Fleet, pid: int) -> bytes | None:
    return fleet.redis.hget(fleet.beating().get(pid, "nobody"), "quiet")


def test_a_rolling_restart_replaces_every_child_and_loses_and_repeats_nothing(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    before = set(fleet.children)
    jids = stage.push_many("Work", [[20]] * 60)

    fleet.send(signal.SIGUSR1)
    eventually(lambda: len(fleet.beating()) == 2 and not before & set(fleet.children), 20, lambda: fleet.output)

    stage.wait_until_done(jids)
    assert max(stage.ledger.starts().values()) == 1
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.oracle("reliability:SW1")
def test_a_stop_in_the_middle_of_a_rolling_restart_drains_old_and_new(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    jids = stage.hold(2)
    (stage.directory / "hang-at-boot").touch()
    fleet.send(signal.SIGUSR1)
    eventually(lambda: len(fleet.children) == 3, 10, "the first replacement")
    (stage.directory / "hang-at-boot").unlink()
    three = fleet.children

    fleet.send(signal.SIGTERM)
    stage.open_gate("go")

    assert fleet.wait() == 0
    assert not any(map(is_there, three))
    assert stage.ledger.jids("end") == set(jids)


@pytest.mark.oracle("extras:SW-5")
@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.01, 0.03, 0.1, 0.3])
def test_a_stop_at_any_moment_of_the_start_ends_everything(delay_s: float, stage: Fleets) -> None:
    fleet = stage.start(count=4)
    fleet.says("a fleet of 4")
    time.sleep(delay_s)
    started = fleet.children

    os.killpg(fleet.pid, signal.SIGTERM)

    assert fleet.wait() == 0
    assert not any(map(is_there, started))
    assert stage.redis.scard("processes") == 0


@pytest.mark.oracle("reliability:SW6")
def test_old_children_work_on_while_their_replacements_crash_at_boot(stage: Fleets) -> None:
    fleet = stage.fleet(2)
    before = fleet.children
    (stage.directory / "always-die-at-boot").touch()

    fleet.send(signal.SIGUSR1)
    fleet.says("ended before its first heartbeat")
    jid = stage.push("Work")
    stage.wait_until_done([jid])
    assert set(before) <= set(fleet.children)
    (stage.directory / "always-die-at-boot").unlink()

    eventually(lambda: len(fleet.beating()) == 2 and not set(before) & set(fleet.children), 20, lambda: fleet.output)


@pytest.mark.oracle("reliability:SW5")
def test_a_replacement_that_hangs_at_boot_takes_over_with_a_warning(stage: Fleets) -> None:
    fleet = stage.fleet(2, constants={"fleet.rolling.BEAT_TIMEOUT_S": 1.5})
    first = fleet.children[0]
    (stage.directory / "hang-at-boot").touch()

    fleet.send(signal.SIGUSR1)

    fleet.says("it takes over all the same")
    eventually(lambda: not is_there(first), 10, lambda: f"the end of the old child\n{fleet.output}")


def test_a_child_that_stands_still_is_killed_and_replaced_and_its_jobs_run(stage: Fleets) -> None:
    fleet = stage.fleet(2, options={"hung_timeout": 1, "timeout": 1}, concurrency=1,
                        constants={"process.GRACE_S": 0.5})  # fmt: skip
    jids = stage.hold(2)
    frozen = stage.pid_of(jids[0])

    os.kill(frozen, signal.SIGSTOP)
    fleet.says(f"child {frozen} has not beaten")
    eventually(lambda: not is_there(frozen), 10, "its end")
    stage.open_gate("go")

    stage.wait_until_done(jids)
    fleet.wait_until(2)


def test_a_child_that_has_grown_too_large_is_replaced(stage: Fleets) -> None:
    fleet = stage.fleet(2, options={"maxmem_mb": 150}, constants={"fleet.health.WEIGH_S": 0.2})
    jid = stage.push("Eat", 160)
    eventually(lambda: jid in stage.ledger.jids("end"), 10, "the meal")
    [fat] = [entry.pid for entry in stage.ledger.entries("end", jid=jid)]

    eventually(lambda: not is_there(fat), 15, lambda: fleet.output)

    assert len(fleet.wait_until(2)) == 2
    assert "of memory; it is replaced" in fleet.output


def test_a_fleet_whose_children_all_fail_at_their_start_ends_with_code_one(stage: Fleets) -> None:
    (stage.directory / "always-die-at-boot").touch()

    fleet = stage.start(count=2, constants={"fleet.slots.FIRST_PAUSE_S": 0.05, "fleet.slots.LONGEST_PAUSE_S": 0.1})

    assert fleet.wait() == 1
    assert "giving up" in fleet.output


def test_each_slot_serves_its_own_queues_with_its_own_threads(stage: Fleets) -> None:
    fleet = stage.start(slots=[[["critical"], 1], [["low"], 3]])
    pids = fleet.wait_until(2)
    critical, low = stage.push("Work", queue="critical"), stage.push("Work", queue="low")

    stage.wait_until_done([critical, low])

    assert {stage.pid_of(critical), stage.pid_of(low)} == set(pids)
    assert {fleet.threads(pid) for pid in pids} == {1, 3}
    assert "a fleet of 2 processes with 4 threads" in fleet.output


@pytest.mark.oracle("extras:SW-2")
def test_whatever_replaces_a_child_serves_the_queues_of_its_slot(stage: Fleets) -> None:
    fleet = stage.start(slots=[[["critical"], 1], [["low"], 3]])
    pids = fleet.wait_until(2)
    served = {pid: (fleet.queues(pid), fleet.threads(pid)) for pid in pids}

    fleet.send(signal.SIGUSR1)
    eventually(lambda: len(fleet.beating()) == 2 and not set(pids) & set(fleet.children), 20, lambda: fleet.output)
    crashed = fleet.children[0]
    os.kill(crashed, signal.SIGKILL)
    eventually(lambda: crashed not in fleet.children, 5)
    fleet.wait_until(2)

    again = [(fleet.queues(pid), fleet.threads(pid)) for pid in fleet.children]
    assert sorted(again) == sorted(served.values()) == [(["critical"], 1), (["low"], 3)]


def test_the_jobs_of_a_killed_child_go_back_to_the_queues_of_its_slot(stage: Fleets) -> None:
    fleet = stage.start(slots=[[["critical"], 1], [["low"], 1]])
    fleet.wait_until(2)
    jid = stage.push("Hold", "go", queue="critical")
    eventually(lambda: jid in stage.ledger.jids("start"), 10, "its start")

    os.kill(stage.pid_of(jid), signal.SIGKILL)

    eventually(lambda: stage.redis.llen("queue:critical") == 1, 2, lambda: fleet.output)
    assert stage.where(jid) == ["queue:critical"]


def test_a_burst_ends_when_all_children_have_drained(stage: Fleets) -> None:
    jids = stage.push_many("Work", [[5]] * 50)

    fleet = stage.start(count=3, burst=True)

    assert fleet.wait() == 0
    assert stage.ledger.jids("end") == set(jids)
    assert stage.redis.smembers("processes") == set()


def test_a_stop_during_an_outage_of_redis_ends_in_time(stage: Fleets) -> None:
    fleet = stage.fleet(2, url=stage.proxy.url, options={"timeout": 1}, constants={"process.GRACE_S": 2.5})
    stage.proxy.refuse = True
    stage.proxy.reset_all()
    time.sleep(0.3)

    started = time.monotonic()
    fleet.send(signal.SIGTERM)

    assert fleet.wait() == 0
    assert time.monotonic() - started < 1 + 2.5 + 2 * 2 + 2
