"""Sidekiq's data API: read and manage queues, sets, processes and totals from outside. A worker never imports it.

Nothing is read when an object is made; each property and method asks Redis anew. What is read are bytes that anybody
may have written: what is no job is shown as text and can be deleted, and never raises. See docs/api.md.
"""

from __future__ import annotations

from .bulk import Bulk, Progress
from .deploys import Deploys
from .entries import SortedEntry
from .processes import Process, ProcessSet
from .queues import Queue
from .records import JobRecord
from .sets import DeadSet, Found, JobSet, RetrySet, ScheduledSet
from .stats import History, Stats
from .works import Work, WorkSet

__all__ = [
    "Bulk",
    "DeadSet",
    "Deploys",
    "Found",
    "History",
    "JobRecord",
    "JobSet",
    "Process",
    "ProcessSet",
    "Progress",
    "Queue",
    "RetrySet",
    "ScheduledSet",
    "SortedEntry",
    "Stats",
    "Work",
    "WorkSet",
]
