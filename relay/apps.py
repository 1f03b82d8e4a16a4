"""The Django app: imports each app's tasks.py and connects signal receivers."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

__all__ = ["RelayConfig"]


class RelayConfig(AppConfig):
    """relay's core."""

    name = "relay"
    label = "relay"
    verbose_name = "Relay"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from relay.scheduler.signals import install  # here: models are loaded now

        install(self)
        autodiscover_modules("tasks")
