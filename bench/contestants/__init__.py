"""The contestants, ours first. A module each: how to load its queue and how to start its worker."""

from __future__ import annotations

from bench.contestants.base import Contestant
from bench.contestants.celery import Celery
from bench.contestants.dramatiq import Dramatiq
from bench.contestants.huey import Huey
from bench.contestants.rq import Rq
from bench.contestants.sidekiq import Sidekiq
from bench.contestants.taskiq import Taskiq
from bench.contestants.wurk import Wurk

WURK = Wurk()
SIDEKIQ = Sidekiq()
CONTESTANTS: tuple[Contestant, ...] = (WURK, SIDEKIQ, Dramatiq(), Taskiq(), Huey(), Celery(), Rq())
