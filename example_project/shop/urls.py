"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from . import views

app_name = "shop"
urlpatterns = [
    path("", views.products, name="products"),
    path("orders/", views.place_order, name="place"),
    path("orders/<int:order_id>/", views.order, name="order"),
    path("orders/<int:order_id>/receipt.pdf", views.receipt, name="receipt"),
    path("products/<int:product_id>/picture.png", views.picture, {"size": "picture"}, name="picture"),
    path("products/<int:product_id>/thumbnail.png", views.picture, {"size": "thumbnail"}, name="thumbnail"),
    path("reports/", views.reports, name="reports"),
    path("reports/<int:report_id>.csv", views.report, name="report"),
    path("activity/", views.activity, name="activity"),
]
