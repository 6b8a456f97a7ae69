"""Placing an order: everything or nothing, the jobs included."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import transaction
from django.db.models import F

from . import jobs
from .models import Order, OrderLine, Product

REVIEW_AFTER = timedelta(seconds=2)  # days in a real shop


class OutOfStock(Exception):
    """There is not enough of a product; nothing was ordered."""


def place(email: str, card_last4: str, quantities: Mapping[int, int]) -> Order:
    """Place an order for so many of each product (by id). Raises OutOfStock.

    The jobs leave for Redis when the transaction commits; their jids are known before and stand in the order. When a
    product runs out half way, the rollback takes order, stock and jobs back alike.
    """
    with transaction.atomic():
        order = Order.objects.create(email=email, card_last4=card_last4)
        order.jobs = {
            "charge": jobs.ChargeCard.perform_async(order.pk),
            "receipt": jobs.send_receipt.delay(order.pk),
            "review": jobs.ask_for_review.perform_in(REVIEW_AFTER, order.pk, language="en"),
        }
        order.save()
        for product in Product.objects.filter(pk__in=quantities).order_by("pk"):
            quantity = quantities[product.pk]
            left = Product.objects.filter(pk=product.pk, stock__gte=quantity)
            if not left.update(stock=F("stock") - quantity):
                raise OutOfStock(f"There are not {quantity} of {product.name} left.")
            OrderLine.objects.create(order=order, product=product, quantity=quantity, price_cents=product.price_cents)
    return order
