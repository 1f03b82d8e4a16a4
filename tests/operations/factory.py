"""Actors and rows for the tests of relay.operations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from relay.ids import uuid7
from relay.models import Job
from relay.operations import Actor

__all__ = ["actor", "make_job"]


def actor(*permissions: str, name: str = "ada", **values: Any) -> Actor:
    return Actor(
        name=name,
        source=values.pop("source", "api"),
        permissions=frozenset(permissions),
        **values,
    )


def make_job(state: str = "queued", **values: Any) -> Job:
    if state == "running":
        values.setdefault("worker_id", uuid7())
    if state in ("completed", "failed", "cancelled"):
        values.setdefault("finished_at", datetime(2026, 1, 1, tzinfo=UTC))
    values.setdefault("task", "tests.noop")
    job = Job.objects.create(state=state, **values)
    job.refresh_from_db()
    return job
