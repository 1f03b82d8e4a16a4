"""settings.TASKS of these tests."""

from __future__ import annotations

import django

__all__ = ["IS_BACKPORT", "LIBRARY", "TASKS"]

IS_BACKPORT = django.VERSION < (6, 0)
LIBRARY = "django_tasks" if IS_BACKPORT else "django.tasks"
RELAY = "relay.backends.RelayBackend"
TASKS = {
    "default": {
        "BACKEND": RELAY,
        "QUEUES": ["default", "queue_1"],
        "OPTIONS": {"max_retries": 0},
    },
    "patient": {"BACKEND": RELAY, "QUEUES": [], "OPTIONS": {"max_retries": 3}},
    "immediate": {
        "BACKEND": f"{LIBRARY}.backends.immediate.ImmediateBackend",
        "QUEUES": [],
    },
    "missing": {"BACKEND": "does.not.exist"},
}
