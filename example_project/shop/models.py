"""What the shop keeps."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.urls import reverse


class Product(models.Model):
    """Something to buy. Its thumbnail is made by a job."""

    name = models.CharField(max_length=100, unique=True)
    price_cents = models.PositiveIntegerField()
    stock = models.PositiveIntegerField(default=0)
    picture = models.FileField(upload_to="products", blank=True)
    thumbnail = models.FileField(upload_to="thumbnails", blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def price(self) -> str:
        return f"{self.price_cents / 100:,.2f}"


class Order(models.Model):
    """One order. `jobs` holds the jids of the jobs it started, written in the transaction that placed it."""

    class Status(models.TextChoices):
        PLACED = "placed"
        PAID = "paid"
        REFUSED = "refused"

    email = models.EmailField()
    card_last4 = models.CharField(max_length=4)
    status = models.CharField(max_length=10, choices=Status, default=Status.PLACED)
    placed_at = models.DateTimeField(auto_now_add=True)
    receipt = models.FileField(upload_to="receipts", blank=True)
    jobs = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"Order {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("shop:order", args=[self.pk])

    @property
    def total_cents(self) -> int:
        return sum(line.quantity * line.price_cents for line in self.lines.all())


class OrderLine(models.Model):
    """So many of one product, at the price of that day."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField(validators=[MinValueValidator(1)])
    price_cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"


class Report(models.Model):
    """The sales of one day as a CSV file, written by a job."""

    day = models.DateField(unique=True)
    file = models.FileField(upload_to="reports")

    class Meta:
        ordering = ("-day",)

    def __str__(self) -> str:
        return f"Sales of {self.day}"


class JobRecord(models.Model):
    """What became of a job that the worker ran: written by `records`, shown on the activity page."""

    class State(models.TextChoices):
        DONE = "done"
        FAILED = "failed"
        DEAD = "dead"

    jid = models.CharField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    queue = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State)
    attempts = models.PositiveIntegerField(default=1)
    error = models.CharField(max_length=200, blank=True)
    waited_s = models.FloatField(help_text="Seconds in the schedule before its first run")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("-updated_at",)

    def __str__(self) -> str:
        return f"{self.name} {self.jid}"
