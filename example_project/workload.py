"""The demo's work: what is enqueued, what must become of it, and what did."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from django.utils import timezone

from wurk_django import config, keys, wire
from wurk_django.errors import MalformedPayload

from .shop import jobs, orders, payments
from .shop.models import JobRecord, Product

GOOD_CARD = "4242"
CARDS = [GOOD_CARD] * 4 + [payments.BUSY_AT_FIRST] * 2 + [payments.DECLINED]
LOW_STOCK = 10_000
SCHEDULED_FROM_S = 1.0  # a job that got into its queue so long after its push was in the schedule


@dataclass(frozen=True)
class Counts:
    """Jobs by what became of them. One job counts in every line that fits it."""

    done: int = 0
    retried: int = 0
    scheduled: int = 0
    dead: int = 0

    def rows(self) -> list[tuple[str, int]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


@dataclass(frozen=True)
class Workload:
    """The jobs of one demo, by jid, and what must become of them."""

    jids: frozenset[str]
    expected: Counts

    def counts(self) -> Counts:
        """What became of them so far: runs by the shop's records, deaths by the dead set in Redis."""
        records = JobRecord.objects.filter(jid__in=self.jids)
        done = records.filter(state=JobRecord.State.DONE)
        return Counts(
            done=done.count(),
            retried=records.filter(attempts__gt=1).count(),
            scheduled=records.filter(waited_s__gte=SCHEDULED_FROM_S).count(),
            dead=len(self.jids & _dead()),
        )

    @property
    def open(self) -> int:
        """Jobs that are neither done nor dead."""
        now = self.counts()
        return len(self.jids) - now.done - now.dead


def enqueue(products: list[Product]) -> Workload:
    """Place orders and start the shop's other jobs."""
    jids: list[Any] = []
    for card in CARDS:
        order = orders.place("visitor@example.com", card, {product.pk: 1 for product in products})
        jids += order.jobs.values()
    jids += jobs.make_thumbnail.perform_bulk([[product.pk] for product in products])
    jids.append(jobs.report_sales.perform_async(timezone.now().date().isoformat()))
    jids.append(jobs.warn_of_low_stock.set(queue="critical").perform_async(LOW_STOCK))
    jids.append(jobs.tell_warehouse.perform_async(order.pk))
    declined = CARDS.count(payments.DECLINED)
    expected = Counts(
        done=len(jids) - declined - 1,
        retried=CARDS.count(payments.BUSY_AT_FIRST),
        scheduled=len(CARDS),  # each order asks for a review after a while
        dead=declined + 1,  # and the warehouse does not answer
    )
    return Workload(frozenset(jids), expected)


def standing() -> str:
    """How many jobs stand where in Redis at this moment."""
    redis = config.default().redis
    queues = redis.pipeline([("LLEN", keys.queue(name)) for name in _queue_names()], idempotent=True)
    sets = redis.pipeline([("ZCARD", key) for key in (keys.SCHEDULE, keys.RETRY, keys.DEAD)], idempotent=True)
    scheduled, retrying, dead = sets
    return f"queued {sum(queues)} · scheduled {scheduled} · to retry {retrying} · in the dead set {dead}"


def _queue_names() -> list[str]:
    return config.default().queue_names()


def _dead() -> set[str]:
    members = config.default().redis.execute("ZRANGE", keys.DEAD, 0, -1, idempotent=True)
    jids = set()
    for member in members:
        with suppress(MalformedPayload):  # a dead set holds what was no job, too
            jids.add(wire.decode_job(member)["jid"])
    return jids
