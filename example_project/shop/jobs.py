"""The jobs of the shop. wurk_django imports this module by its name, in web and worker processes alike.

A job may run twice when a process is killed at the wrong moment, so each can be repeated without harm.
"""

from __future__ import annotations

import csv
import io
import json
import urllib.request
from datetime import date
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.mail import EmailMessage
from django.db.models import F, Sum

from wurk_django import Job, current_job, job

from . import payments, pdf, png
from .models import Order, OrderLine, Product, Report

THUMBNAIL = (80, 60)
WAREHOUSE_TIMEOUT_S = 3


class ChargeCard(Job, queue="critical", retry=5):
    """Takes the money for an order. Asks again soon while the provider is busy, gives a declined card up at once."""

    def perform(self, order_id: int) -> None:
        order = Order.objects.get(pk=order_id)
        if order.status == Order.Status.PAID:
            return
        running = current_job()
        count = None if running is None else running.retry_count
        payments.charge(order.card_last4, order.total_cents, attempt=1 if count is None else count + 2)
        Order.objects.filter(pk=order_id).update(status=Order.Status.PAID)

    @staticmethod
    def retry_in(count: int, error: BaseException, payload: dict[str, Any]) -> int | str:
        return "kill" if isinstance(error, payments.CardDeclined) else 1 + count

    @staticmethod
    def retries_exhausted(payload: dict[str, Any], error: BaseException) -> None:
        Order.objects.filter(pk=payload["args"][0]).update(status=Order.Status.REFUSED)


@job(queue="mail")
def send_receipt(order_id: int) -> None:
    """Write the receipt as a PDF, keep it with the order and mail it."""
    order = Order.objects.prefetch_related("lines__product").get(pk=order_id)
    document = pdf.text_pdf(str(order), receipt_lines(order))
    if not order.receipt:
        order.receipt.save(f"{order.pk}.pdf", ContentFile(document), save=False)
        order.save(update_fields=["receipt"])
    mail = EmailMessage(f"Your receipt for order {order.pk}", "Thank you. Your receipt is attached.", to=[order.email])
    mail.attach(f"receipt-{order.pk}.pdf", document, "application/pdf")
    mail.send()


@job(queue="mail", retry=3)
def ask_for_review(order_id: int, *, language: str) -> None:
    """Ask, some time after the order, how it was."""
    order = Order.objects.get(pk=order_id)
    subject = {"en": "How was it?", "de": "Wie war es?"}[language]
    EmailMessage(subject, f"{order} is yours for a while now.", to=[order.email]).send()


@job(queue="documents")
def make_thumbnail(product_id: int) -> None:
    """Shrink a product's picture."""
    product = Product.objects.get(pk=product_id)
    with product.picture.open() as file:
        small = png.shrink(png.read(file.read()), *THUMBNAIL)
    product.thumbnail.delete(save=False)
    product.thumbnail.save(f"{product.pk}.png", ContentFile(png.write(small)), save=False)
    product.save(update_fields=["thumbnail"])


@job(queue="documents")
def report_sales(day: str) -> None:
    """Write the sales of a day (ISO date) as CSV: product, pieces, amount."""
    lines = OrderLine.objects.filter(order__placed_at__date=date.fromisoformat(day))
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["product", "pieces", "amount"])
    amount = Sum(F("quantity") * F("price_cents"))
    for row in lines.values("product__name").annotate(pieces=Sum("quantity"), cents=amount).order_by("product__name"):
        writer.writerow([row["product__name"], row["pieces"], money(row["cents"])])
    report, _ = Report.objects.get_or_create(day=day)
    report.file.delete(save=False)
    report.file.save(f"{day}.csv", ContentFile(table.getvalue().encode()))


@job
async def warn_of_low_stock(threshold: int) -> None:
    """Mail the keeper of the shop what runs out. An `async def` job: the worker awaits it on its event loop."""
    scarce = [f"{product}: {product.stock}" async for product in Product.objects.filter(stock__lt=threshold)]
    if scarce:
        EmailMessage("Running out", "\n".join(scarce), to=["keeper@example.com"]).send()


@job(retry=0)
def tell_warehouse(order_id: int) -> None:
    """Tell the warehouse to pick an order. Not retried: its people look into the dead set instead."""
    body = json.dumps({"order": order_id}).encode()
    request = urllib.request.Request(settings.SHOP_WAREHOUSE_URL, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAREHOUSE_TIMEOUT_S):
        pass


def receipt_lines(order: Order) -> list[str]:
    """The receipt as text, amounts in a column."""
    rows = [
        f"{line.quantity:>4} x {line.product.name:<40.40} {money(line.quantity * line.price_cents):>12}"
        for line in order.lines.all()
    ]
    head = ["The Example Shop", "", f"Receipt for order {order.pk}", f"{order.placed_at:%Y-%m-%d %H:%M} UTC", ""]
    return [*head, *rows, "-" * 60, f"{'Total':<47} {money(order.total_cents):>12}"]


def money(cents: int) -> str:
    """Cents as text."""
    return f"{cents / 100:,.2f}"
