"""Whether a schedule's row can be kept: one reason for each field that says no."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from relay.codec import encode_arguments
from relay.conf import LONGEST
from relay.exceptions import ArgumentError, EncodeError, ScheduleError
from relay.instants import aware
from relay.options import EARLIEST, LATEST, check_task_name
from relay.scheduler.catchup import LONGEST_WINDOW, POLICIES
from relay.scheduler.cron import load_zone, parse
from relay.scheduler.exclusions import read_exclusions
from relay.scheduler.job import (
    check_arguments,
    check_priority,
    check_queue,
    refuse_own,
)
from relay.scheduler.overlap import check_overlap
from relay.scheduler.timetable import check_interval, check_spread

if TYPE_CHECKING:
    from relay.models import Schedule

__all__ = ["check_ends", "check_name", "check_policy", "find_errors"]

_LONGEST_NAME: Final = 200
# Names stand in addresses of REST and the dashboard. Of "preview", and of what these
# come after, something else is asked there; the rest clients take out of an address.
_TAKEN: Final = "preview"
_ENDINGS: Final = frozenset({"act", "edit", "next", "pause", "resume", "trigger"})
_NO_STEPS: Final = frozenset({"", ".", ".."})


def find_errors(schedule: Schedule) -> dict[str, str]:
    """Return why the definition cannot be kept, by field; empty if it can."""
    checks: dict[str, Callable[[], object]] = {
        "name": lambda: check_name(schedule.name),
        "task": lambda: _check_task(schedule.task),
        "cron": lambda: _check_rule(schedule),
        "every_ms": lambda: _check_span(check_interval, schedule.every_ms),
        "once_at": lambda: _in_utc(schedule.once_at),
        "starts_at": lambda: _in_utc(schedule.starts_at),
        "ends_at": lambda: _check_ends(schedule),
        "excluded": lambda: read_exclusions(
            schedule.excluded, hash_id=str(schedule.id)
        ),
        "spread_ms": lambda: _check_span(check_spread, schedule.spread_ms),
        "overlap": lambda: check_overlap(schedule.overlap),
        "success_within_ms": lambda: _check_span(
            _check_success_within, schedule.success_within_ms
        ),
        "timezone": lambda: load_zone(schedule.timezone),
        "args": lambda: _check_args(schedule),
        "queue": lambda: schedule.queue is None or check_queue(schedule.queue),
        "priority": lambda: (
            schedule.priority is None or check_priority(schedule.priority)
        ),
        "catch_up": lambda: _check_catch_up(schedule.catch_up),
        "catch_up_window_ms": lambda: _check_window(_span(schedule.catch_up_window_ms)),
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
    overlap: str,
    spread: timedelta | None,
    success_within: timedelta | None,
) -> None:
    """Refuse what a declaration says besides its expression and zone.

    Raises:
        ScheduleError: with the reason.
    """
    if name is not None:
        check_name(name)
    if queue is not None:
        check_queue(queue)
    if priority is not None:
        check_priority(priority)
    _check_catch_up(catch_up)
    _check_window(window)
    check_overlap(overlap)
    if spread is not None:
        check_spread(spread)
    if success_within is not None:
        _check_success_within(success_within)


def check_ends(starts_at: datetime | None, ends_at: datetime | None) -> None:
    """Refuse a stretch of time that ends before it begins.

    Raises:
        ScheduleError: it does.
    """
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise ScheduleError("it ends before it starts")


def _span(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _check_span(check: Callable[[timedelta], object], milliseconds: int | None) -> None:
    if milliseconds is not None:
        check(_span(milliseconds))


def _check_rule(schedule: Schedule) -> None:
    given = [
        bool(schedule.cron),
        schedule.every_ms is not None,
        schedule.once_at is not None,
    ]
    if sum(given) != 1:
        raise ScheduleError(
            "say when in one way: by an expression, an interval (every_ms) or one "
            "instant (once_at)"
        )
    if schedule.cron:
        parse(schedule.cron, seconds=schedule.seconds, hash_id=str(schedule.id))


def _check_ends(schedule: Schedule) -> None:
    ends_at = _in_utc(schedule.ends_at)
    try:
        starts_at = _in_utc(schedule.starts_at)
    except ScheduleError:
        return  # it is said of starts_at
    check_ends(starts_at, ends_at)


def _in_utc(at: datetime | None) -> datetime | None:
    """Return a time in UTC, if it can be told in any zone.

    Raises:
        ScheduleError: it cannot.
    """
    if at is None:
        return None
    with suppress(OverflowError):
        found = aware(at)
        if EARLIEST <= found <= LATEST:
            return found
    raise ScheduleError(
        f"{at.isoformat()}: give an instant from {EARLIEST:%Y-%m-%d} to "
        f"{LATEST:%Y-%m-%d}"
    )


def _check_success_within(span: timedelta) -> None:
    if not timedelta(0) < span <= LONGEST:
        raise ScheduleError(
            f"success within {span.total_seconds():g} s: give more than nothing, and "
            f"at most {LONGEST.days:,} days"
        )


def check_name(name: str) -> None:
    """Refuse what cannot name a schedule.

    Raises:
        ScheduleError: with the reason.
    """
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ScheduleError(f"give a name of 1 to {_LONGEST_NAME} printable characters")
    *before, last = steps = name.split("/")
    is_taken = name == _TAKEN or (before and last in _ENDINGS)
    if is_taken or not _NO_STEPS.isdisjoint(steps):
        raise ScheduleError(
            f"no address leads to the name {name!r}: 'preview' and endings such as "
            "'/next' are taken, and between slashes there is no '.', '..' or nothing"
        )


def _check_task(name: str) -> None:
    try:
        check_task_name(name)
    except ArgumentError as error:
        raise ScheduleError(str(error)) from error
    refuse_own(name)


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
