"""Which calls to Redis may be sent again when their answer was lost: every one, with the reason.

A table and no more. Each call says for itself what it declares (`idempotent=`); the tests hold the two against each
other, so that no call comes in without a row. docs/spec/reliability.md §13.2.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What the calls of one function declare, in their order, and what a replay does."""

    declared: tuple[str, ...]
    why: str


def _reads(*functions: str) -> dict[str, Row]:
    return {function: Row(("yes",), "a read") for function in functions}


TABLE: dict[str, Row] = {
    **_reads(
        "storage.deploys.marks",
        "storage.leader.current",
        "storage.orphans.describe_unreadable",
        "storage.orphans.idle_seconds",
        "storage.orphans.newest",
        "storage.orphans.private_lists",
        "storage.processes.count",
        "storage.processes.find",
        "storage.processes.is_alive",
        "storage.processes.last_beats",
        "storage.processes.measure_rtt_us",
        "storage.queues.held_counts",
        "storage.queues.is_paused",
        "storage.queues.latency_s",
        "storage.queues.names",
        "storage.queues.page",
        "storage.queues.paused",
        "storage.queues.size",
        "storage.queues.unfinished",
        "storage.server.inspect",
        "storage.server.now_s",
        "storage.sorted_sets.following",
        "storage.sorted_sets.ranked",
        "storage.sorted_sets.scan",
        "storage.sorted_sets.score",
        "storage.sorted_sets.size",
        "storage.sorted_sets.sizes",
        "storage.stats.of_days",
        "storage.stats.totals",
    ),
    "storage.processes._with_info": Row(("yes", "yes"), "reads"),
    "storage.processes.all_processes": Row(("yes", "yes"), "reads"),
    "storage.processes.running": Row(("yes", "yes"), "reads"),
    "storage.queues.summaries": Row(("yes", "yes", "yes"), "reads"),
    # Jobs come in
    "storage.queues.push": Row(("no",), "LPUSH: a replay is a second job"),
    "storage.sorted_sets.schedule": Row(("yes", "yes"), "ZADD of the same member; WAIT asks"),
    # Jobs are claimed and finished
    "storage.queues.dispatch": Row(
        ("not lanes",), "a replayed claim takes other jobs; without lanes it only removes what is to be removed"
    ),
    "storage.queues.held": Row(("yes",), "a read; what is over the cap moves to the dead set once"),
    "storage.queues.requeue": Row(("yes",), "the second LREM finds nothing, so nothing is written"),
    "storage.sorted_sets.book_retry": Row(("yes",), "the second LREM finds nothing, so nothing is written"),
    "storage.sorted_sets.bury": Row(("yes",), "the second LREM finds nothing, so nothing is written"),
    "storage.sorted_sets.kill": Row(("yes",), "ZADD of the same member"),
    "storage.sorted_sets.trim_dead": Row(("yes",), "removes what is over the limits"),
    "storage.sorted_sets.promote_due": Row(("yes",), "what was promoted is gone; only the count is lost"),
    "storage.orphans.drain": Row(("yes",), "the second LREM finds nothing, so nothing is written"),
    # Jobs are changed from outside
    "storage.queues.clear": Row(("no",), "a replay would delete what was pushed meanwhile"),
    "storage.queues.remove": Row(("no",), "LREM of one: a replay may remove a second copy"),
    "storage.sorted_sets.add": Row(("yes",), "ZADD of the same member"),
    "storage.sorted_sets.clear": Row(("no",), "a replay would delete what came in meanwhile"),
    "storage.sorted_sets.move_to_dead": Row(("no",), "a replay finds nothing and would say that the jobs were gone"),
    "storage.sorted_sets.move_to_queues": Row(("no",), "a replay finds nothing and would say that the jobs were gone"),
    "storage.sorted_sets.remove": Row(("no",), "a replay finds nothing and would say that the jobs were gone"),
    "storage.sorted_sets.reschedule": Row(("yes",), "ZADD XX of the same member"),
    # Processes
    "storage.processes.beat": Row(("no",), "takes signals: a replay would lose them; the next beat is near"),
    "storage.processes.deregister": Row(("yes",), "SREM, UNLINK"),
    "storage.processes.prune": Row(("no", "yes"), "SET NX: a replay reads its own write as another's; SREM"),
    "storage.processes.send_signal": Row(("no",), "LPUSH: the signal would be sent twice"),
    "storage.orphans.bury_poison": Row(("yes",), "the second LREM finds nothing, so nothing is written"),
    "storage.orphans.take_lock": Row(("no",), "SET NX: a replay reads its own write as another's"),
    "storage.leader.campaign": Row(("yes",), "compares the owner"),
    "storage.leader.release_if_owner": Row(("yes",), "compares the owner"),
    "storage.leader.begin_term": Row(("no",), "INCR: a replay would count a term that nobody held"),
    # Counters and switches
    "storage.deploys.mark": Row(("no", "yes"), "SET NX: a replay reads its own write as another's; HSETNX, EXPIRE"),
    "storage.queues.pause": Row(("yes",), "SADD; only the answer whether it was new may be wrong"),
    "storage.queues.unpause": Row(("yes",), "SREM; only the answer whether it was paused may be wrong"),
    "storage.queues.unblock": Row(("yes",), "CLIENT UNBLOCK: at worst it ends a later wait early"),
    "storage.stats.reset": Row(("no",), "a replay would take away what was counted meanwhile"),
    "storage.stats.add": Row(("no",), "INCRBY would count twice"),
}
