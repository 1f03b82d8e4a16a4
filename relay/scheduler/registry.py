"""Schedules declared in code, and their rows kept in step."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import connections, transaction
from django.db.models import Q
from django.db.models.functions import Now

from relay.conf import get_settings
from relay.exceptions import ScheduleError
from relay.tasks import Task

if TYPE_CHECKING:
    from relay.models import Schedule

__all__ = ["Declaration", "SyncCounts", "declared", "register", "sync_declared"]

logger = logging.getLogger("relay.scheduler")

# One sync at a time, so that two deploys do not both make a row. The number is free of
# meaning; it only has to differ from those of others.
_SYNC_LOCK: Final = 7_235_412_806_115_339
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What one @cron, @every or @once says.

    Attributes:
        args: the JSON text of the arguments.
        enabled: whether the row is enabled when it is made; afterwards the row says.
    """

    name: str
    task: str
    cron: str
    seconds: bool
    every: timedelta | None
    once_at: datetime | None
    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    excluded: str | None
    spread: timedelta | None
    overlap: str
    success_within: timedelta | None
    catch_up: str
    catch_up_window: timedelta
    args: str
    queue: str | None
    priority: int | None
    enabled: bool

    @property
    def when(self) -> str:
        """When it is due, in a word."""
        if self.every is not None:
            return f"every {self.every}"
        return repr(self.cron) if self.once_at is None else f"once at {self.once_at}"

    def fields(self) -> dict[str, Any]:
        """Return the columns that the code owns; a sync overwrites them."""
        return {
            "task": self.task,
            "cron": self.cron,
            "seconds": self.seconds,
            "every_ms": _milliseconds(self.every),
            "once_at": self.once_at,
            "timezone": self.timezone,
            "starts_at": self.starts_at,
            "ends_at": self.ends_at,
            "excluded": self.excluded,
            "spread_ms": _milliseconds(self.spread),
            "overlap": self.overlap,
            "success_within_ms": _milliseconds(self.success_within),
            "catch_up": self.catch_up,
            "catch_up_window_ms": self.catch_up_window // _MILLISECOND,
            "args": json.loads(self.args),
            "queue": self.queue,
            "priority": self.priority,
        }


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MILLISECOND


# By name, with the task object that each was declared for.
_declared: dict[str, tuple[Declaration, Task[..., Any]]] = {}


def declared() -> Mapping[str, Declaration]:
    """Return what has been declared in this process, by name."""
    return {name: declaration for name, (declaration, _) in _declared.items()}


def register(declaration: Declaration, task: Task[..., Any]) -> None:
    """Take a declaration in.

    Raises:
        ScheduleError: its name is taken.
    """
    there = _declared.get(declaration.name)
    if there is not None and there[0] != declaration:
        # A module that is imported again makes its tasks anew.
        is_same_task = there[1] is task
        if is_same_task or there[0].task != declaration.task:
            raise ScheduleError(
                f"the schedule name {declaration.name!r} is taken by {there[0].when} "
                f"of {there[0].task}: give this one another with name=..."
            )
    _declared[declaration.name] = (declaration, task)


class SyncCounts(NamedTuple):
    """What a sync did to the rows.

    Attributes:
        retired: disabled, as the code no longer declares them.
        conflicts: names that a schedule made in the database holds; left as they are.
    """

    created: int
    updated: int
    unchanged: int
    retired: int
    conflicts: int


def sync_declared(using: str | None = None) -> SyncCounts:
    """Bring the rows of declared schedules in step with the code.

    The definition is overwritten; enabled is not, so that an operator's pause stays.
    What is no longer declared is disabled, never deleted, and enabled again when it
    is declared again.

    Args:
        using: an alias of settings.DATABASES; RELAY["DATABASE"] unless given.

    Transaction: its own, or the caller's.
    """
    from relay.models import Schedule, ScheduleSource  # here: @cron loads no models

    using = using or get_settings().database
    wanted = declared()
    counts = dict.fromkeys(SyncCounts._fields, 0)
    with transaction.atomic(using=using):
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_SYNC_LOCK])
        rows = {
            row.name: row
            for row in Schedule.objects.using(using)
            .select_for_update(no_key=True)
            .filter(Q(source=ScheduleSource.CODE) | Q(name__in=wanted))
            .order_by("id")
        }
        for declaration in wanted.values():
            counts[_sync_one(declaration, rows.get(declaration.name), using)] += 1
        counts["retired"] = (
            Schedule.objects.using(using)
            .filter(source=ScheduleSource.CODE, enabled=True)
            .exclude(name__in=wanted)
            .update(enabled=False, retired_at=Now())
        )
    return SyncCounts(**counts)


def _sync_one(declaration: Declaration, row: Schedule | None, using: str) -> str:
    from relay.models import Schedule, ScheduleSource  # here: @cron loads no models

    fields = declaration.fields()
    if row is None:
        Schedule(
            name=declaration.name,
            enabled=declaration.enabled,
            source=ScheduleSource.CODE,
            **fields,
        ).save(using=using)
        return "created"
    if row.source != ScheduleSource.CODE:
        logger.warning(
            "declared schedule not synced: its name is taken in the database",
            extra={"schedule": declaration.name, "task": declaration.task},
        )
        return "conflicts"
    changed = _changed(declaration, row)
    if not changed:
        return "unchanged"
    Schedule.objects.using(using).filter(pk=row.pk).update(**changed)
    return "updated"


def _changed(declaration: Declaration, row: Schedule) -> dict[str, Any]:
    """Return what of a row is not as the code declares it."""
    fields = declaration.fields()
    if row.retired_at is not None:
        fields |= {"enabled": declaration.enabled, "retired_at": None}
    return {
        field: value for field, value in fields.items() if getattr(row, field) != value
    }


def read_unsynced(*, using: str) -> list[str]:
    """Return the names of declared schedules whose rows a sync would make or change.

    Transaction: one statement on Django's connection.
    """
    from relay.models import Schedule, ScheduleSource  # here: @cron loads no models

    rows = Schedule.objects.using(using).in_bulk(list(declared()), field_name="name")
    return sorted(
        name
        for name, declaration in declared().items()
        if (row := rows.get(name)) is None
        or (row.source == ScheduleSource.CODE and _changed(declaration, row))
    )
