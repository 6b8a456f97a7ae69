"""The door of the app: what happens when Django starts."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules


class WurkConfig(AppConfig):
    """Registers the settings, the checks and the jobs of every installed app. Connects to nothing."""

    name = "wurk_django"
    verbose_name = "Wurk"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import conf, config, database
        from .checks import check_settings

        config.set_default_factory(conf.load)
        database.watch_connections()
        checks.register(check_settings, "wurk")
        autodiscover_modules("jobs", "tasks")
