"""Whether this process and its database fit: migrations, and how far the clocks are."""

from __future__ import annotations

import time
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from relay.conf import get_settings
from relay.models import Job
from relay.operations import Actor
from relay.queries.documents import SoundnessDocument
from relay.queries.reading import bounded_read

__all__ = ["CLOCK", "get_soundness", "read_migrations", "read_skew"]

# A lease is judged by the database's clock alone; what people read off several clocks
# goes wrong above this. Source: docs/reference/checks.md.
SKEW_SECONDS: Final = 2.0
CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"


def get_soundness(actor: Actor) -> SoundnessDocument:
    """Return which of relay's migrations are missing, and the clocks' difference.

    Raises:
        NotAllowed: the actor lacks view_metrics.
        ReadTimeout: a statement took longer than 2 s.
    """
    actor.require("view_metrics", "get_soundness")
    using = get_settings().database
    with bounded_read(using):
        missing = read_migrations(using)["missing"]
        return {"missing_migrations": missing, "clock_skew": read_skew(using)}


def read_migrations(using: str) -> dict[str, list[str]]:
    """Return relay's own, without the graph of all apps': probes come every second."""
    label = Job._meta.app_label
    module, _ = MigrationLoader.migrations_module(label)
    places = import_module(module).__path__ if module else ()  # none where it is off
    names = sorted(each.name for each in iter_modules(places))
    done = MigrationRecorder(connections[using]).applied_migrations()
    applied = [name for name in names if (label, name) in done]
    return {
        "applied": applied,
        "missing": [name for name in names if name not in applied],
    }


def read_skew(using: str) -> float | None:
    """Return by how many seconds the database's clock is ahead of this machine's.

    Below zero it is behind. None where it is within 2 s, the answer's own way aside.
    """
    asked_at = time.time()
    with connections[using].cursor() as cursor:
        cursor.execute(CLOCK)
        [(clock,)] = cursor.fetchall()
    answered_at = time.time()
    skew: float = clock - (asked_at + answered_at) / 2
    if abs(skew) - (answered_at - asked_at) / 2 <= SKEW_SECONDS:
        return None
    return skew
