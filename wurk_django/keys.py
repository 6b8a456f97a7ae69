"""The Redis keys of the core: the only place where their names are spelled.

Rooms have a `keys.py` of their own. Wire: Sidekiq 8.1 for the public keys, docs/spec/reliability.md §3 for private
lists and recovery counters.
"""

from __future__ import annotations

QUEUES = "queues"
PAUSED = "paused"
SCHEDULE = "schedule"
RETRY = "retry"
DEAD = "dead"
PROCESSES = "processes"
PROCESS_CLEANUP = "process_cleanup"
LEADER = "dear-leader"
LEADER_TERMS = "leader-token"
STAT_PROCESSED = "stat:processed"
STAT_FAILED = "stat:failed"

QUEUE_PREFIX = "queue:"
RECOVERED_PREFIX = "super_fetch:recovered:"
REAPER_LOCK_PREFIX = "super_fetch:reaper:"
REAPER_WATCH = REAPER_LOCK_PREFIX + "watch"
REAPER_FULL = REAPER_LOCK_PREFIX + "full"


def queue(name: str) -> str:
    """The list of a public queue: producers push left, consumers take right."""
    return QUEUE_PREFIX + name


def private_list(queue_name: str, host: str, pid: int, nonce: str, index: int = 0) -> str:
    """The list that holds what one process has claimed from one queue and not acknowledged, newest left.

    `index` numbers the capsules of the process; with one capsule it is 0.
    """
    return f"{QUEUE_PREFIX}{queue_name}|{host}|{pid}|{nonce}|{index}"


def recovered(jid: str) -> str:
    """How often the reaper brought this job back; deleted by every acknowledgement."""
    return RECOVERED_PREFIX + jid


def work(identity: str) -> str:
    """The hash of the jobs that a process is running: thread id to JSON."""
    return identity + ":work"


def older_work(identity: str) -> str:
    """The same hash under the name that Sidekiq before 6.5 reads."""
    return identity + ":workers"


def signals(identity: str) -> str:
    """The list of signal names sent to a process."""
    return identity + "-signals"


def per_day(stat: str, date: str) -> str:
    """A statistic of one UTC day; `date` is YYYY-MM-DD."""
    return f"{stat}:{date}"


def reaper_lock(queues_digest: str) -> str:
    """Held by the process that sweeps this set of queues in this interval."""
    return REAPER_LOCK_PREFIX + queues_digest


def reaper_boot_lock(queues_digest: str) -> str:
    """Held by the one that looks, of the processes with these queues that start together."""
    return f"{REAPER_LOCK_PREFIX}{queues_digest}:boot"


def deploy_marks(date: str) -> str:
    """The deploy marks of one UTC day; `date` is YYYYMMDD."""
    return f"{date}-marks"


def deploy_lock(label: str) -> str:
    """Held for a minute by the first machine that marks this deployment."""
    return f"deploylock-{label}"
