"""@cron, @every and @once: schedules declared above their task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar, Unpack

from relay import codec
from relay.exceptions import EncodeError, ScheduleError
from relay.nearest import unknown
from relay.scheduler.catchup import CatchUpPolicy
from relay.scheduler.cron import load_zone, parse
from relay.scheduler.exclusions import join, read_exclusions
from relay.scheduler.job import refuse_sensitive
from relay.scheduler.overlap import OverlapPolicy
from relay.scheduler.registry import Declaration, register
from relay.scheduler.timetable import check_interval
from relay.scheduler.validation import check_ends, check_name, check_policy
from relay.tasks import Task

__all__ = ["ScheduleOptions", "cron", "every", "once"]

TaskT = TypeVar("TaskT", bound=Task[..., Any])

_SPAN: Final = (timedelta, "a timedelta, such as timedelta(minutes=10)")
_INSTANT: Final = (datetime, "an aware datetime")
# What the options must be whose checks take that for granted. None is as if not given,
# but for those in _NEVER_NONE.
_EXPECTED: Final[Mapping[str, tuple[type, str]]] = {
    "name": (str, "a text"),
    "timezone": (str, 'the name of an IANA zone, such as "Europe/Berlin"'),
    "starts_at": _INSTANT,
    "ends_at": _INSTANT,
    "exclude": (Sequence, 'a list, such as ["2026-12-25"]'),
    "spread": _SPAN,
    "success_within": _SPAN,
    "catch_up_window": _SPAN,
    "args": (Sequence, "a list or tuple"),
    "kwargs": (Mapping, "a dict"),
    "enabled": (bool, "True or False"),
}
_NO_TIMES: Final = {"cron": "", "seconds": False, "every": None, "once_at": None}
_NEVER_NONE: Final = {"timezone", "exclude", "catch_up_window", "args", "enabled"}


class ScheduleOptions(TypedDict, total=False):
    """What every kind of schedule can be given.

    Attributes:
        name: unique; the task's name unless given.
        timezone: an IANA zone, in whose local time expressions and exclusions are
            read; UTC unless given.
        starts_at, ends_at: nothing is due before or after; both included.
        exclude: what is left out: dates, stretches of dates ("2026-12-24/2027-01-06"),
            expressions of five fields ("* * 25 12 *": that day, each year).
        spread: each run comes so much later at most: by how much, the schedule's name
            decides, so that it is always the same.
        overlap: what happens with an occurrence while an earlier run has not ended:
            allow it (unless given), skip it, queue one, or cancel the earlier run.
        success_within: without a success for longer it is reported by manage.py check
            --database, and shown in the admin.
        catch_up: which occurrences run that passed while no scheduler ran: none, the
            latest one (unless given), or all.
        catch_up_window: how far back that reaches: a day unless given, 31 at most.
        args, kwargs: what each job is given.
        queue, priority: instead of the task's.
        enabled: whether the row is enabled when it is made; afterwards the row says.
    """

    name: str | None
    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    exclude: Sequence[str | date]
    spread: timedelta | None
    overlap: OverlapPolicy
    success_within: timedelta | None
    catch_up: CatchUpPolicy
    catch_up_window: timedelta
    args: Sequence[object]
    kwargs: Mapping[str, object] | None
    queue: str | None
    priority: int | None
    enabled: bool


def cron(
    expression: str, *, seconds: bool = False, **options: Unpack[ScheduleOptions]
) -> Callable[[TaskT], TaskT]:
    """Declare a schedule of a task: stands above @task, as often as needed.

    Its row is made by migrate and by relay_scheduler --sync; a worker's start
    changes none. From then on the code owns its definition, and the row whether it
    is enabled.

    Args:
        expression: five fields, or with seconds=True six beginning with the second.
        options: see ScheduleOptions.

    Raises:
        ScheduleError: at once, if the schedule could not be kept.
    """
    _check_options("cron", options)
    _check("expression", expression, str, 'a text, such as "0 7 * * *"')
    _check("seconds", seconds, bool, "True or False")
    spec = parse(expression, seconds=seconds, hash_id=options.get("name") or "")
    return _declare("cron", options, cron=spec.expression, seconds=seconds)


def every(
    interval: timedelta, **options: Unpack[ScheduleOptions]
) -> Callable[[TaskT], TaskT]:
    """Declare a schedule that is due again and again after so much real time.

    It counts from starts_at, or without one from 1970-01-01 00:00 UTC: six hours mean
    0, 6, 12 and 18 o'clock UTC, whatever started when. Otherwise as cron().

    Args:
        interval: whole seconds, 366 days at most.
        options: see ScheduleOptions.

    Raises:
        ScheduleError: at once, if the schedule could not be kept.
    """
    _check_options("every", options)
    _check("interval", interval, *_SPAN)
    check_interval(interval)
    return _declare("every", options, every=interval)


def once(at: datetime, **options: Unpack[ScheduleOptions]) -> Callable[[TaskT], TaskT]:
    """Declare a schedule that is due once. Otherwise as cron().

    An instant that had passed when the row was made is not run.

    Args:
        at: aware.
        options: see ScheduleOptions.

    Raises:
        ScheduleError: at once, if the schedule could not be kept.
    """
    _check_options("once", options)
    _check("at", at, *_INSTANT)
    _check_aware("at", at)
    return _declare("once", options, once_at=at)


def _declare(
    word: str, options: ScheduleOptions, **when: Any
) -> Callable[[TaskT], TaskT]:
    """Return what declares a schedule of the task that it is given.

    Args:
        when: what Declaration has of the word's own arguments.
    """
    said = {**_NO_TIMES, **when, **_checked(options)}

    def declare(task: TaskT) -> TaskT:
        if not isinstance(task, Task):
            raise ScheduleError(
                f"@{word} on {task!r}: it is no task; write @{word} above @task"
            )
        name = options.get("name")
        if name is None:
            name = task.name
            check_name(name)
        args = _encode(task, options)
        register(Declaration(name=name, task=task.name, args=args, **said), task)
        return task

    return declare


def _checked(options: ScheduleOptions) -> dict[str, Any]:
    """Return what Declaration has of the options, but for those of the task's own."""
    timezone, excluded = (
        options.get("timezone", "UTC"),
        join(options.get("exclude", ())),
    )
    load_zone(timezone)
    read_exclusions(excluded)
    starts_at, ends_at = options.get("starts_at"), options.get("ends_at")
    _check_aware("starts_at", starts_at)
    _check_aware("ends_at", ends_at)
    check_ends(starts_at, ends_at)
    window = options.get("catch_up_window", timedelta(days=1))
    policy: dict[str, Any] = {
        "queue": options.get("queue"),
        "priority": options.get("priority"),
        "catch_up": options.get("catch_up", "latest"),
        "overlap": options.get("overlap", "allow"),
        "spread": options.get("spread"),
        "success_within": options.get("success_within"),
    }
    check_policy(name=options.get("name"), window=window, **policy)
    return {
        **policy,
        "timezone": timezone,
        "starts_at": starts_at,
        "ends_at": ends_at,
        "excluded": excluded,
        "catch_up_window": window,
        "enabled": options.get("enabled", True),
    }


def _check_options(word: str, options: ScheduleOptions) -> None:
    known = ScheduleOptions.__annotations__
    for name, value in options.items():
        if name not in known:
            raise ScheduleError(f"@{word} has no option {unknown([name], known)}")
        if name in _EXPECTED and (value is not None or name in _NEVER_NONE):
            _check(name, value, *_EXPECTED[name])


def _check(name: str, value: object, kind: type, remedy: str) -> None:
    if not isinstance(value, kind) or (kind is Sequence and isinstance(value, str)):
        raise ScheduleError(f"{name}={value!r}: give {remedy}")


def _check_aware(what: str, instant: datetime | None) -> None:
    if instant is not None and instant.tzinfo is None:
        raise ScheduleError(
            f"{what}={instant} has no time zone: give an aware datetime"
        )


def _encode(task: Task[..., Any], options: ScheduleOptions) -> str:
    args = tuple(options.get("args", ()))
    kwargs = dict(options.get("kwargs") or {})
    try:
        task.signature.bind(*args, **kwargs)
        refuse_sensitive(task, args, kwargs)
        return codec.encode_arguments(args, kwargs)
    except (TypeError, EncodeError) as error:
        raise ScheduleError(
            f"the arguments of the schedule do not fit {task.name}: {error}"
        ) from error
