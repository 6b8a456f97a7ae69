"""The shop as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Nothing to set up: wurk_django finds `jobs.py` by itself."""

    name = "example_project.shop"
    label = "shop"
