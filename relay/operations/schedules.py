"""What is done to schedules: run, pause, resume, create, edit, delete."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import psycopg.errors
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, models, transaction

from relay.codec import check_count
from relay.conf import DEFAULT_QUEUE
from relay.exceptions import Conflict, EncodeError, NotFound
from relay.models import Schedule, ScheduleSource
from relay.models.schedule import DEFINITION
from relay.operations.actor import Actor
from relay.operations.registry import Act, operation
from relay.scheduler import acts
from relay.tasks import all_tasks

__all__ = [
    "create_schedule",
    "delete_schedule",
    "edit_schedule",
    "may_have_run",
    "pause_schedules",
    "resume_schedules",
    "run_schedule",
]


# Columns of which a row made by hand may hold what Python cannot read.
_ODD: Final = ("args", "once_at", "starts_at", "ends_at")


@operation("run_schedule", subject="schedule")
def run_schedule(act: Act, schedule_id: UUID) -> UUID:
    """Enqueue a schedule's job now, apart from its due instants; return the job's id.

    Raises:
        NotAllowed: the actor lacks run_schedule, or what the task or queue asks for.
        NotFound: it is gone.
        ScheduleError: it cannot be kept; nothing was enqueued.
    """
    [name] = _names(act, [schedule_id]).values()
    rows = Schedule.objects.using(act.using).filter(pk=schedule_id)
    # Locked: what is checked is what is enqueued.
    found = rows.select_for_update(no_key=True).values_list("task", "queue")
    for task, queue in found:
        _require(act, task, queue)
    job_id = acts.run_now(
        schedule_id, actor=act.actor.name, using=act.using, why=act.actor.why
    )
    act.note(name, job=str(job_id))
    return job_id


@operation("manage_schedule", subject="schedule")
def pause_schedules(act: Act, schedule_ids: Iterable[UUID]) -> list[UUID]:
    """Let schedules run no more until they are resumed; return those that did.

    Raises:
        NotAllowed: the actor lacks manage_schedule.
        NotFound: one is gone; none was changed.
    """
    return _enable(act, schedule_ids, False)


@operation("manage_schedule", subject="schedule")
def resume_schedules(act: Act, schedule_ids: Iterable[UUID]) -> list[UUID]:
    """Let paused schedules run again, from now on; as pause_schedules."""
    return _enable(act, schedule_ids, True)


@operation("manage_schedule", subject="schedule")
def create_schedule(act: Act, schedule: Schedule) -> Schedule:
    """Add a schedule.

    Args:
        schedule: not saved yet.

    Raises:
        NotAllowed: the actor lacks manage_schedule, enqueue_job, or what the task or
            queue asks for.
        django.core.exceptions.ValidationError: it cannot be kept; the reasons by field.
        Conflict: there is one of this name.
    """
    act.actor.require("enqueue_job", act.operation)
    _require(act, schedule.task, schedule.queue)
    _check_count(schedule)
    schedule.source = ScheduleSource.DATABASE
    _save(act, schedule, force_insert=True)
    act.note(schedule.name)
    return schedule


@operation("manage_schedule", subject="schedule")
def edit_schedule(act: Act, schedule: Schedule, changed: Collection[str]) -> None:
    """Save some columns of a schedule; what schedulers write meanwhile stays.

    Args:
        schedule: its row, with the new values.
        changed: the names of the columns to save.

    Raises:
        NotAllowed: the actor lacks manage_schedule; or enqueue_job, and the task or
            its arguments change; or more than enabled changes and the task or queue
            asks for what they lack.
        NotFound: it is gone.
        Conflict: it is declared in code, where all but enabled is edited; or another
            has the new name.
        django.core.exceptions.ValidationError: it cannot be kept; the reasons by field.
    """
    rows = Schedule.objects.using(act.using).filter(pk=schedule.pk)
    # Not all columns: Python cannot hold every time that a row may.
    columns = {"name", "source", "task", "queue", *changed}
    try:
        before = rows.select_for_update().only(*columns).first()
    except DataError as error:
        raise _unreadable(schedule, error) from error
    if before is None:
        raise NotFound(f"schedule {schedule.pk} does not exist")
    if before.source == ScheduleSource.CODE and set(changed) - {"enabled"}:
        raise _owned_by_code(before)
    called = {"task", "args"} & set(changed)
    if any(_whole(before, each) != _whole(schedule, each) for each in called):
        act.actor.require("enqueue_job", act.operation)
    if set(changed) - {"enabled"}:
        task = schedule.task if "task" in changed else before.task
        queue = schedule.queue if "queue" in changed else before.queue
        _require(act, task, queue)
    if "args" in changed:
        _check_count(schedule)
    if {*changed} & DEFINITION:
        _read_again(schedule, rows, changed)
    if changed:
        _save(act, schedule, update_fields=changed)
        act.note(before.name, **_differences(before, schedule, changed))
        if "enabled" in changed and schedule.enabled != before.enabled:
            _log_enabled(act, before.name, schedule.enabled)


@operation("manage_schedule", subject="schedule")
def delete_schedule(act: Act, schedule_id: UUID) -> None:
    """Delete a schedule and its occurrences; its jobs stay.

    Raises:
        NotAllowed: the actor lacks manage_schedule.
        NotFound: it is gone.
        Conflict: it is declared in code, which would make it again: pause it.
    """
    rows = Schedule.objects.using(act.using).filter(pk=schedule_id)
    schedule = rows.select_for_update().only("name", "source").first()
    if schedule is None:
        raise NotFound(f"schedule {schedule_id} does not exist")
    if schedule.source == ScheduleSource.CODE:
        raise _owned_by_code(schedule)
    schedule.delete()
    act.note(schedule.name)


def may_have_run(actor: Actor, task: str, queue: str | None) -> bool:
    """Tell whether jobs of a schedule are an actor's to have run, as far as they ask.

    Args:
        queue: None for the task's.
    """
    return actor.may_call(task) and actor.may_fill(_queue(task, queue))


def _read_again(
    schedule: Schedule, rows: models.QuerySet[Schedule], changed: Collection[str]
) -> None:
    """Take what others have changed meanwhile: all of what is kept is checked.

    What cannot be read, such as a time that Python cannot hold, stays as it was given.
    """
    others = DEFINITION - {*changed}
    for names in (others - {*_ODD}, *({each} for each in others & {*_ODD})):
        with suppress(DataError, ValueError):
            for name, value in rows.values(*names).get().items() if names else ():
                setattr(schedule, name, value)


def _whole(schedule: Schedule, name: str) -> Any:
    """Return a column; arguments with both parts, of which a row may lack one."""
    value = getattr(schedule, name)
    is_call = isinstance(value, dict)
    return {"args": [], "kwargs": {}, **value} if is_call else value


def _check_count(schedule: Schedule) -> None:
    try:
        check_count(schedule.args, None)
    except EncodeError as error:
        raise ValidationError({"args": str(error)}) from None


def _require(act: Act, task: str, queue: str | None) -> None:
    """Let it go on if the actor may have the schedule's jobs run."""
    act.actor.require_call(task, act.operation)
    act.actor.require_fill(_queue(task, queue), act.operation)


def _queue(task: str, queue: str | None) -> str:
    if queue is not None:
        return queue
    made = all_tasks().get(task)
    return DEFAULT_QUEUE if made is None else made.queue


def _save(act: Act, schedule: Schedule, **options: Any) -> None:
    try:
        with transaction.atomic(using=act.using):
            schedule.save(using=act.using, **options)
    except IntegrityError as error:
        if not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
            raise
        raise Conflict(f"there is a schedule {schedule.name!r} already") from error
    except DataError as error:
        raise _unreadable(schedule, error) from error


def _unreadable(schedule: Schedule, error: DataError) -> Conflict:
    """Return what is said of a row made by hand, with a time beyond Python's."""
    return Conflict(f"schedule {schedule.pk} cannot be read: {error}")


def _owned_by_code(schedule: Schedule) -> Conflict:
    return Conflict(
        f"schedule {schedule.name!r} is declared in code and would come back: change "
        "it there, or pause it"
    )


def _enable(act: Act, schedule_ids: Iterable[UUID], enabled: bool) -> list[UUID]:
    ids = list(schedule_ids)
    names = _names(act, ids)
    changed = acts.set_enabled(ids, enabled, actor=act.actor.name, using=act.using)
    for schedule_id in changed:
        act.note(names[schedule_id])
        _log_enabled(act, names[schedule_id], enabled)
    return changed


def _log_enabled(act: Act, name: str, enabled: bool) -> None:
    if enabled:
        act.log("schedule.enabled", "schedule resumed", schedule=name)
    else:
        act.log("schedule.disabled", "schedule paused", schedule=name)


def _names(act: Act, schedule_ids: Collection[UUID]) -> dict[UUID, str]:
    rows = Schedule.objects.using(act.using).filter(pk__in=schedule_ids)
    names = dict(rows.values_list("pk", "name"))
    for schedule_id in schedule_ids:
        if schedule_id not in names:
            raise NotFound(f"schedule {schedule_id} does not exist")
    return names


def _differences(
    before: Schedule, after: Schedule, changed: Collection[str]
) -> dict[str, Any]:
    """Return before and after by column; of arguments only that they were given."""
    return {
        name: None
        if name == "args"
        else [_shown(getattr(before, name)), _shown(getattr(after, name))]
        for name in sorted(changed)
    }


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int) else str(value)
