"""Rows of workers and schedules for the tests of relay.queries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from relay.models import Schedule, Worker

__all__ = ["make_schedule", "make_worker"]


def make_worker(**values: Any) -> Worker:
    """Make a worker that is alive."""
    now = timezone.now()
    given = {
        "name": "w1",
        "host": "h",
        "pid": 1,
        "queues": ["default"],
        "concurrency": 2,
        "version": "1",
        "heartbeat_at": now,
        "lease_expires_at": now + timedelta(hours=1),
    }
    worker = Worker.objects.create(**given | values)
    worker.refresh_from_db()
    return worker


def make_schedule(name: str = "nightly", **values: Any) -> Schedule:
    given = {"task": "tests.noop", "cron": "0 3 * * *"}
    return Schedule.objects.create(name=name, **given | values)
