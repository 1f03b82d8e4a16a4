"""Schedules declared in code by @cron, and their rows kept in step."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from django.db import connections, transaction
from django.db.models import Q
from django.db.models.functions import Now

from relay import codec
from relay.conf import get_settings
from relay.exceptions import EncodeError, ScheduleError
from relay.scheduler.catchup import CatchUpPolicy
from relay.scheduler.cron import load_zone, parse
from relay.scheduler.job import refuse_sensitive
from relay.scheduler.validation import check_policy
from relay.tasks import Task

if TYPE_CHECKING:
    from relay.models import Schedule

__all__ = ["Declaration", "SyncCounts", "cron", "declared", "sync_declared"]

logger = logging.getLogger("relay.scheduler")

TaskT = TypeVar("TaskT", bound=Task[..., Any])

# One sync at a time, so that two deploys do not both make a row. The number is free of
# meaning; it only has to differ from those of others.
_SYNC_LOCK: Final = 7_235_412_806_115_339
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What one @cron says.

    Attributes:
        args: the JSON text of the arguments.
        enabled: whether the row is enabled when it is made; afterwards the row says.
    """

    name: str
    task: str
    cron: str
    seconds: bool
    timezone: str
    catch_up: str
    catch_up_window: timedelta
    args: str
    queue: str | None
    priority: int | None
    enabled: bool

    def fields(self) -> dict[str, Any]:
        """Return the columns that the code owns; a sync overwrites them."""
        return {
            "task": self.task,
            "cron": self.cron,
            "seconds": self.seconds,
            "timezone": self.timezone,
            "catch_up": self.catch_up,
            "catch_up_window_ms": self.catch_up_window // _MILLISECOND,
            "args": json.loads(self.args),
            "queue": self.queue,
            "priority": self.priority,
        }


# By name, with the task object that each was declared for.
_declared: dict[str, tuple[Declaration, Task[..., Any]]] = {}


def declared() -> Mapping[str, Declaration]:
    """Return what @cron has declared in this process, by name."""
    return {name: declaration for name, (declaration, _) in _declared.items()}


def cron(
    expression: str,
    *,
    timezone: str = "UTC",
    seconds: bool = False,
    catch_up: CatchUpPolicy = "latest",
    catch_up_window: timedelta = timedelta(days=1),
    name: str | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    enabled: bool = True,
) -> Callable[[TaskT], TaskT]:
    """Declare a schedule of a task: stands above @task, as often as needed.

    Its row is made by migrate and by relay_scheduler --sync; a worker's start
    changes none. From then on the code owns its definition, and the row whether it
    is enabled.

    Args:
        expression: five fields, or six beginning with the second; see cron.parse.
        timezone: an IANA zone, in whose local time the expression is read.
        catch_up: which occurrences run that passed while no scheduler ran: none, the
            latest one, or all.
        catch_up_window: how far back that reaches; 31 days at most.
        name: unique; the task's name unless given.
        args, kwargs: what each job is given.
        queue, priority: instead of the task's.

    Raises:
        ScheduleError: at once, if the schedule could not be kept.
    """
    spec = parse(expression, seconds=seconds, hash_id=name or "")
    load_zone(timezone)
    check_policy(
        name=name,
        queue=queue,
        priority=priority,
        catch_up=catch_up,
        window=catch_up_window,
    )

    def declare(task: TaskT) -> TaskT:
        if not isinstance(task, Task):
            raise ScheduleError(
                f"@cron on {task!r}: it is no task; write @cron above @task"
            )
        _register(
            Declaration(
                name=task.name if name is None else name,
                task=task.name,
                cron=spec.expression,
                seconds=seconds,
                timezone=timezone,
                catch_up=catch_up,
                catch_up_window=catch_up_window,
                args=_encode(task, tuple(args), dict(kwargs or {})),
                queue=queue,
                priority=priority,
                enabled=enabled,
            ),
            task,
        )
        return task

    return declare


def _encode(
    task: Task[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
) -> str:
    try:
        task.signature.bind(*args, **kwargs)
        refuse_sensitive(task, args, kwargs)
        return codec.encode_arguments(args, kwargs)
    except (TypeError, EncodeError) as error:
        raise ScheduleError(
            f"the arguments of the schedule do not fit {task.name}: {error}"
        ) from error


def _register(declaration: Declaration, task: Task[..., Any]) -> None:
    there = _declared.get(declaration.name)
    if there is not None and there[0] != declaration:
        # A module that is imported again makes its tasks anew.
        is_same_task = there[1] is task
        if is_same_task or there[0].task != declaration.task:
            raise ScheduleError(
                f"the schedule name {declaration.name!r} is taken by {there[0].cron!r} "
                f"of {there[0].task}: give this one another with @cron(name=...)"
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
    if row.retired_at is not None:
        fields |= {"enabled": declaration.enabled, "retired_at": None}
    changed = {
        field: value for field, value in fields.items() if getattr(row, field) != value
    }
    if not changed:
        return "unchanged"
    Schedule.objects.using(using).filter(pk=row.pk).update(**changed)
    return "updated"
