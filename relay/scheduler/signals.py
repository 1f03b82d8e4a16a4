"""What the app connects once models are loaded: validation, and the sync at migrate."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models.signals import post_migrate

from relay.conf import get_settings
from relay.models import Schedule
from relay.scheduler.registry import sync_declared
from relay.scheduler.validation import find_errors

__all__ = ["install"]


def install(sender: Any) -> None:
    """Give the Schedule model its checks, and sync declared schedules after migrate."""
    Schedule.find_errors = staticmethod(find_errors)
    post_migrate.connect(
        _sync_after_migrate, sender=sender, dispatch_uid="relay.scheduler"
    )


def _sync_after_migrate(*, using: str, apps: Any = None, **_: Any) -> None:
    if using == get_settings().database and _has_table(using, apps):
        sync_declared(using)


def _has_table(using: str, apps: Any) -> bool:
    """Tell whether the table has this release's columns; migrated back it has not."""
    if apps is not None:
        try:
            migrated = apps.get_model("relay", "Schedule")
        except LookupError:
            return False
        columns = {field.column for field in migrated._meta.local_fields}
        return columns == {field.column for field in Schedule._meta.local_fields}
    return Schedule._meta.db_table in connections[using].introspection.table_names()
