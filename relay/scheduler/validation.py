"""Whether a schedule's row can be kept: one reason for each field that says no."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from relay.codec import encode_arguments
from relay.exceptions import ArgumentError, EncodeError, ScheduleError
from relay.options import check_task_name
from relay.scheduler.catchup import LONGEST_WINDOW, POLICIES
from relay.scheduler.cron import load_zone, parse
from relay.scheduler.job import check_arguments, check_priority, check_queue

if TYPE_CHECKING:
    from relay.models import Schedule

__all__ = ["check_policy", "find_errors"]

_LONGEST_NAME: Final = 200


def find_errors(schedule: Schedule) -> dict[str, str]:
    """Return why the definition cannot be kept, by field; empty if it can."""
    checks: dict[str, Callable[[], object]] = {
        "name": lambda: _check_name(schedule.name),
        "task": lambda: _check_task(schedule.task),
        "cron": lambda: parse(
            schedule.cron, seconds=schedule.seconds, hash_id=str(schedule.id)
        ),
        "timezone": lambda: load_zone(schedule.timezone),
        "args": lambda: _check_args(schedule),
        "queue": lambda: schedule.queue is None or check_queue(schedule.queue),
        "priority": lambda: (
            schedule.priority is None or check_priority(schedule.priority)
        ),
        "catch_up": lambda: _check_catch_up(schedule.catch_up),
        "catch_up_window_ms": lambda: _check_window(
            timedelta(milliseconds=schedule.catch_up_window_ms)
        ),
    }
    errors: dict[str, str] = {}
    for field, check in checks.items():
        try:
            check()
        except ScheduleError as error:
            errors[field] = str(error)
        except (TypeError, AttributeError, OverflowError):
            # A value of another type, as forms and code can leave it.
            errors[field] = f"{getattr(schedule, field)!r} cannot be used here"
    return errors


def check_policy(
    *,
    name: str | None,
    queue: str | None,
    priority: int | None,
    catch_up: str,
    window: timedelta,
) -> None:
    """Refuse what a declaration says besides its expression and zone.

    Raises:
        ScheduleError: with the reason.
    """
    if name is not None:
        _check_name(name)
    if queue is not None:
        check_queue(queue)
    if priority is not None:
        check_priority(priority)
    _check_catch_up(catch_up)
    _check_window(window)


def _check_name(name: str) -> None:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ScheduleError(f"give a name of 1 to {_LONGEST_NAME} printable characters")


def _check_task(name: str) -> None:
    try:
        check_task_name(name)
    except ArgumentError as error:
        raise ScheduleError(str(error)) from error


def _check_args(schedule: Schedule) -> None:
    from relay.models import ScheduleSource  # here: @cron loads no models

    arguments = check_arguments(schedule.args)
    if (
        schedule.source != ScheduleSource.CODE
    ):  # there they were encoded, and so checked
        try:
            encode_arguments(tuple(arguments["args"]), arguments["kwargs"])
        except EncodeError as error:
            raise ScheduleError(str(error)) from error


def _check_catch_up(catch_up: str) -> None:
    if catch_up not in POLICIES:
        raise ScheduleError(
            f"catch_up {catch_up!r} is not known: {', '.join(POLICIES)}"
        )


def _check_window(window: timedelta) -> None:
    if not timedelta(0) <= window <= LONGEST_WINDOW:
        raise ScheduleError(
            f"a catch-up window of {window.total_seconds():g} s must lie between 0 and "
            f"{LONGEST_WINDOW.days} days: occurrences are not remembered for longer"
        )
