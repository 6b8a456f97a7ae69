"""The pages of the shop."""

from __future__ import annotations

from typing import Any

from django.core.files import File
from django.db.models.fields.files import FieldFile
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from . import jobs, orders
from .forms import OrderForm
from .models import JobRecord, Order, Product, Report

RECENT = 50  # rows on a page


@require_GET
def products(request: HttpRequest) -> HttpResponse:
    """The front page: everything there is, and a form to order it."""
    return _products(request, OrderForm())


@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """Place an order, or show what is wrong with it."""
    form = OrderForm(request.POST)
    if not form.is_valid():
        return _products(request, form, status=400)
    try:
        order = orders.place(form.cleaned_data["email"], form.cleaned_data["card_last4"], form.quantities())
    except orders.OutOfStock as problem:
        form.add_error(None, str(problem))
        return _products(request, form, status=409)
    return redirect(order)


@require_GET
def order(request: HttpRequest, order_id: int) -> HttpResponse:
    """One order and what its jobs did so far."""
    found = get_object_or_404(Order.objects.prefetch_related("lines__product"), pk=order_id)
    records = {record.jid: record for record in JobRecord.objects.filter(jid__in=found.jobs.values())}
    steps = [(step, jid, records.get(jid)) for step, jid in found.jobs.items()]
    return render(request, "shop/order.html", {"order": found, "steps": steps})


@require_GET
def receipt(request: HttpRequest, order_id: int) -> FileResponse:
    """The receipt, once it is written."""
    return _file(get_object_or_404(Order, pk=order_id).receipt)


@require_GET
def picture(request: HttpRequest, product_id: int, size: str) -> FileResponse:
    """A product's picture or thumbnail."""
    product = get_object_or_404(Product, pk=product_id)
    return _file(product.thumbnail if size == "thumbnail" else product.picture)


@require_http_methods(["GET", "POST"])
def reports(request: HttpRequest) -> HttpResponse:
    """Sales reports; a POST asks for today's."""
    if request.method == "POST":
        jobs.report_sales.perform_async(timezone.now().date().isoformat())
        return redirect("shop:reports")
    return render(request, "shop/reports.html", {"reports": Report.objects.all()[:RECENT]})


@require_GET
def report(request: HttpRequest, report_id: int) -> FileResponse:
    """One report."""
    return _file(get_object_or_404(Report, pk=report_id).file)


@require_GET
def activity(request: HttpRequest) -> HttpResponse:
    """What the jobs did lately."""
    return render(request, "shop/activity.html", {"records": JobRecord.objects.all()[:RECENT]})


def _products(request: HttpRequest, form: OrderForm, status: int = 200) -> HttpResponse:
    context: dict[str, Any] = {"products": Product.objects.all(), "form": form}
    return render(request, "shop/products.html", context, status=status)


def _file(field: FieldFile) -> FileResponse:
    if not field:
        raise Http404("it is not made yet")
    opened: File[bytes] = field.open()
    return FileResponse(opened)
