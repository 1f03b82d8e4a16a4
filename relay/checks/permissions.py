"""E013: what a task or a queue asks for is nothing that anybody could be given."""

from __future__ import annotations

import re
from typing import Final

from django.apps import apps
from django.core.checks import CheckMessage

from relay.checks.messages import error, readable_settings
from relay.tasks import all_tasks

__all__ = ["check_permissions"]

_PERMISSION: Final = re.compile(r"(?P<app>\w+)\.\S+")


def check_permissions(**_: object) -> list[CheckMessage]:
    """E013: a permission is not written app.codename, or of an app that is not here."""
    relay = readable_settings()
    asked: list[tuple[str, str, object]] = [
        (f"the task {made.name!r}", made.permission, made.name)
        for made in all_tasks().values()
        if made.permission is not None
    ]
    if relay is not None:
        of_queues = sorted(relay.queue_permissions.items())
        asked += [(f"the queue {name!r}", each, None) for name, each in of_queues]
    return [
        error(
            "E013",
            f"{what} asks for the permission {permission!r}, {reason}: nobody but a "
            "superuser would be let through",
            "Write it as Django does, such as 'billing.charge'.",
            obj=obj,
        )
        for what, permission, obj in asked
        if (reason := _fault(permission)) is not None
    ]


def _fault(permission: str) -> str | None:
    found = _PERMISSION.fullmatch(permission)
    if found is None:
        return "which is not written as an app's label, a dot and a name"
    if not _has_app(found["app"]):
        return f"and no app {found['app']!r} is installed"
    return None


def _has_app(label: str) -> bool:
    return any(config.label == label for config in apps.get_app_configs())
