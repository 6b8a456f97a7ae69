"""The shop in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from . import jobs
from .models import JobRecord, Order, OrderLine, Product, Report


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    """Products; the action makes their thumbnails anew, a thousand jobs a round trip."""

    list_display = ("name", "price_cents", "stock", "thumbnail")
    actions = ("make_thumbnails",)

    @admin.action(description="Make the thumbnails anew", permissions=["change"])
    def make_thumbnails(self, request: HttpRequest, queryset: QuerySet[Product]) -> None:
        with_picture = queryset.exclude(picture="").values_list("pk", flat=True)
        jids = jobs.make_thumbnail.perform_bulk([[pk] for pk in with_picture])
        self.message_user(request, f"{len(jids)} thumbnails will be made.")


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """Orders; the action mails their receipts again."""

    list_display = ("__str__", "email", "status", "placed_at", "receipt")
    list_filter = ("status",)
    inlines = (OrderLineInline,)
    actions = ("send_receipts",)

    @admin.action(description="Send the receipts again", permissions=["change"])
    def send_receipts(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        jids = jobs.send_receipt.perform_bulk([[pk] for pk in queryset.values_list("pk", flat=True)])
        self.message_user(request, f"{len(jids)} receipts will be sent.")


@admin.register(Report)
class ReportAdmin(admin.ModelAdmin):
    list_display = ("day", "file")


@admin.register(JobRecord)
class JobRecordAdmin(admin.ModelAdmin):
    list_display = ("jid", "name", "queue", "state", "attempts", "error", "updated_at")
    list_filter = ("state", "queue")
