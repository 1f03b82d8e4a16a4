"""The Django app: imports each app's tasks.py and connects signal receivers."""

from __future__ import annotations

import sys
from importlib import import_module

from django.apps import AppConfig
from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import autodiscover_modules

from relay.conf import get_settings
from relay.exceptions import SettingsError

__all__ = ["RelayConfig"]


class RelayConfig(AppConfig):
    """relay's core."""

    name = "relay"
    label = "relay"
    verbose_name = "Relay"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from relay import metrics, tracing
        from relay.checks import register  # here: models are loaded now
        from relay.scheduler.signals import install

        register()
        if metrics.is_available():
            metrics.install()
        if tracing.is_available():
            tracing.install()
        install(self)
        autodiscover_modules("tasks")
        import_module("relay.load")  # its task, so that every worker knows it
        import_module("relay.operations")  # the same
        if _serves_django_tasks():
            from relay.backends import discover  # here: needs Django 6.0, or a backport

            discover()
        _follow_test_mode()
        setting_changed.connect(_follow_test_mode, dispatch_uid="relay.test_mode")


def _follow_test_mode(*, setting: str = "RELAY", **_: object) -> None:
    """Let the mode of RELAY["TEST_MODE"] hold; where none is set, load nothing."""
    if setting != "RELAY":
        return
    try:
        is_set = get_settings().test_mode is not None
    except SettingsError:  # check and each use of the settings tell of it
        return
    if is_set or "relay.testing.modes" in sys.modules:
        import_module("relay.testing.modes").follow_setting()


def _serves_django_tasks() -> bool:
    aliases = getattr(settings, "TASKS", None) or {}
    paths = [str(values.get("BACKEND")) for values in aliases.values()]
    return "relay.backends" in sys.modules or any(
        path.startswith("relay.backends.") for path in paths
    )
