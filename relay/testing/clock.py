"""Move relay's time: the clock is the database's, so the rows' times move instead."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.apps import apps
from django.db import connections
from django.db.models import DateTimeField

from relay.models import Occurrence, Schedule
from relay.scheduler.due import find_due, forget_disabled
from relay.scheduler.occurrences import fire
from relay.scheduler.timetable import read_timetable, spread_of
from relay.testing.session import alias_of, engine_session

__all__ = ["assert_schedule", "fire_due_schedules", "travel"]

# How far each travel that is not over has gone. Schedules do not move, as their
# instants are the calendar's: they are fired that much ahead of the clock.
_travels: Final[list[timedelta]] = []

_NEW: Final = "SELECT id FROM relay_schedule WHERE enabled AND planned IS NULL"


def _ahead() -> timedelta:
    return sum(_travels, timedelta(0))


class travel:
    """Let so much of relay's time pass, for a block: with travel(hours=1): ...

    Due times, leases and all other times of jobs, workers, queues and history move
    into the past, and back at the end. Schedules keep their instants, and
    fire_due_schedules() fires them as of the later time. Python's own clock stays.

    Args:
        by: how much; instead, the arguments of a timedelta. Negative goes back.
    """

    def __init__(
        self, by: timedelta | None = None, *, using: str | None = None, **parts: float
    ) -> None:
        self._by = timedelta(**parts) if by is None else by
        self._using = using
        self._is_entered = False

    def __enter__(self) -> None:
        self._is_entered = True
        alias = alias_of(self._using)
        _plan(alias)
        _shift(alias, -self._by)
        _travels.append(self._by)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _travels.remove(self._by)
        alias = alias_of(self._using)
        # What failed may have broken the transaction, and the test is over.
        if kind is None and not connections[alias].needs_rollback:
            _shift(alias, self._by)

    def __del__(self) -> None:
        if not getattr(self, "_is_entered", True):
            warnings.warn(
                "travel() moved nothing: write `with travel(...):`",
                RuntimeWarning,
                stacklevel=2,
            )


def _plan(alias: str) -> None:
    """Plan schedules that no scheduler has seen yet, as of before the travel."""
    with engine_session(alias) as session:
        for (schedule_id,) in session.execute(_NEW).fetchall():
            fire(session, schedule_id, ahead=_ahead())


def _columns() -> Iterator[tuple[str, list[str]]]:
    for model in apps.get_app_config("relay").get_models():
        if model not in (Schedule, Occurrence):
            columns = [
                str(field.column)
                for field in model._meta.local_concrete_fields
                if isinstance(field, DateTimeField) and field.name != "occurrence_at"
            ]
            if columns:
                yield model._meta.db_table, columns


def _shift(alias: str, by: timedelta) -> None:
    with engine_session(alias) as session:
        for table, columns in _columns():
            moved = ", ".join(f"{name} = {name} + %(by)s" for name in columns)
            session.execute(f"UPDATE {table} SET {moved}".encode(), {"by": by})  # noqa: S608 - names of models


def fire_due_schedules(*, using: str | None = None) -> int:
    """Enqueue what schedules have due now, wherever travel() has gone; return how many.

    Schedules that are new, or were edited, are planned from now on. What is enqueued
    waits for drain(), also in inline mode.

    Raises:
        ScheduleError: a schedule cannot be kept.
    """
    fired = 0
    with engine_session(alias_of(using)) as session:
        forget_disabled(session)
        waiting = find_due(session, ahead=_ahead())
        # A long catch-up comes in batches; what is locked elsewhere stays as it is.
        while waiting:
            for due in waiting:
                fired += len(fire(session, due.id, ahead=_ahead()))
            before = set(waiting)
            waiting = [
                due for due in find_due(session, ahead=_ahead()) if due not in before
            ]
    return fired


def assert_schedule(
    name: str, *, next: Any, task: str | None = None, using: str | None = None
) -> None:
    """Fail unless the schedule is enabled and due next at that instant.

    Args:
        next: an aware datetime, or approx(...); None if it is never due again.
        task: the name of its task, if that matters.
    """
    __tracebackhide__ = True
    alias = alias_of(using)
    row = Schedule.objects.using(alias).filter(name=name).first()
    if row is None:
        names = Schedule.objects.using(alias).order_by("name")
        known = ", ".join(names.values_list("name", flat=True)) or "none"
        raise AssertionError(
            f"there is no schedule {name!r}, only: {known}; declared ones are made by "
            "migrate and by sync_declared()"
        )
    if not row.enabled:
        raise AssertionError(f"the schedule {name!r} is disabled")
    if task is not None and row.task != task:
        raise AssertionError(f"the schedule {name!r} runs {row.task}, not {task}")
    with engine_session(alias) as session:
        values = session.execute("SELECT clock_timestamp() + %s", (_ahead(),))
        [now] = values.fetchone() or ()
    now -= spread_of(row.name, row.spread_ms)
    found = read_timetable(row).first_after(now)
    if found != next:
        is_due = f"due next at {found.isoformat()}" if found else "never due again"
        raise AssertionError(f"the schedule {name!r} is {is_due}, not {next!r}")
