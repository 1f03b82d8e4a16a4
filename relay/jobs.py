"""Acts on many jobs at once: those that a filter finds, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, Unpack
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction

from relay.conf import check_queue_name, get_settings
from relay.engine import control, matching
from relay.engine.acts import ActReport
from relay.exceptions import ArgumentError, RelayError
from relay.labels import check_tag
from relay.nearest import unknown
from relay.options import check_task_name
from relay.tasks import Task

__all__ = [
    "CancelFilter",
    "JobsReport",
    "RetryFilter",
    "acancel_jobs",
    "aretry_jobs",
    "cancel_jobs",
    "retry_jobs",
]

# Ids read by one statement, and jobs changed by one. Source: docs/howto/many-jobs.md.
PAGE: Final = 20_000
CHUNK: Final = 1_000
# Most jobs that a dry run counts.
COUNT_LIMIT: Final = 100_000

# In the order in which a job goes through them: one that moves on meanwhile is met
# again further down.
_CANCELLABLE: Final = ("scheduled", "retrying", "queued", "running")
_RETRIABLE: Final = ("failed", "cancelled")


class _Filter(TypedDict, total=False):
    queue: str
    task: Task[..., Any] | str
    tag: str
    error_class: str
    created_after: datetime
    created_before: datetime


class CancelFilter(_Filter, total=False):
    """Which jobs cancel_jobs is about: those of which all holds.

    Attributes:
        queue, task, tag: the task also by its name.
        error_class: of the last attempt that failed, as 'ConnectionError'.
        created_after, created_before: aware datetimes, the first one included.
        state: all four unless given.
    """

    state: Literal["scheduled", "retrying", "queued", "running"]


class RetryFilter(_Filter, total=False):
    """Which jobs retry_jobs is about: those of which all holds.

    Attributes:
        queue, task, tag: the task also by its name.
        error_class: of the last attempt, as 'ConnectionError'.
        created_after, created_before: aware datetimes, the first one included.
        finished_after, finished_before: the same of the end.
        state: failed unless given.
    """

    finished_after: datetime
    finished_before: datetime
    state: Literal["failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsReport:
    """What an act on many jobs came to.

    Attributes:
        found: jobs that the filter found; of a dry run, how many it would.
        done: those that were changed.
        asked: running ones whose workers were asked to stop them.
        skipped: those that had moved on, or lost their unique keys to others.
        is_capped: whether the limit was reached, so that there may be more.
    """

    found: int
    done: int = 0
    asked: int = 0
    skipped: int = 0
    is_capped: bool = False


def cancel_jobs(
    *,
    actor: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    **which: Unpack[CancelFilter],
) -> JobsReport:
    """Cancel the jobs that have not started, and ask the workers of running ones.

    They are changed 1,000 at a time, each part committed by itself, and skipped where
    they have moved on: broken off, it is called again and goes on. Jobs that come in
    meanwhile may be cancelled too.

    Args:
        actor: who asks for it, for the jobs' history.
        limit: most jobs to act on.
        dry_run: count them, up to limit or 100,000, and change nothing.
        which: at least one of CancelFilter's.

    Raises:
        ArgumentError: nothing is asked for, or what is cannot be used.
        RelayError: the caller is inside a transaction.
    """
    act = _with_actor(control.cancel_many, actor)
    return _act(act, _CANCELLABLE, _CANCELLABLE, which, limit=limit, dry_run=dry_run)


async def acancel_jobs(
    *,
    actor: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    **which: Unpack[CancelFilter],
) -> JobsReport:
    """As cancel_jobs, for async code."""
    return await sync_to_async(cancel_jobs, thread_sensitive=True)(
        actor=actor, limit=limit, dry_run=dry_run, **which
    )


def retry_jobs(
    *,
    actor: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    **which: Unpack[RetryFilter],
) -> JobsReport:
    """Run jobs that failed again, or with state="cancelled" those.

    Each as JobHandle.retry does; otherwise as cancel_jobs. One whose unique key
    another job has by now is skipped.
    """
    act = _with_actor(control.retry_many, actor)
    states = ("failed",)
    return _act(act, _RETRIABLE, states, which, limit=limit, dry_run=dry_run)


async def aretry_jobs(
    *,
    actor: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    **which: Unpack[RetryFilter],
) -> JobsReport:
    """As retry_jobs, for async code."""
    return await sync_to_async(retry_jobs, thread_sensitive=True)(
        actor=actor, limit=limit, dry_run=dry_run, **which
    )


def _with_actor(
    act: Callable[..., ActReport], actor: str | None
) -> Callable[[Sequence[UUID], str], ActReport]:
    return lambda ids, using: act(ids, actor=actor, using=using)


# --- the filter ----------------------------------------------------------------------


def _read(
    which: Mapping[str, Any], allowed: Sequence[str], default: Sequence[str]
) -> tuple[matching.JobFilter, Sequence[str]]:
    """Return what is asked for, and the states it is about.

    Raises:
        ArgumentError: nothing is, or something cannot be used.
    """
    known = {*CancelFilter.__annotations__, *RetryFilter.__annotations__}
    if allowed is _CANCELLABLE:
        known -= {"finished_after", "finished_before"}
    known |= set(_Filter.__annotations__)
    if none := which.keys() - known:
        raise ArgumentError(f"unknown filter {unknown(none, known)}")
    asked = {name: value for name, value in which.items() if value is not None}
    if not asked:
        raise ArgumentError(
            "no filter is given, and none means all jobs: say which, such as "
            'queue="mail"; of all, state="queued"'
        )
    state = asked.pop("state", None)
    if state is not None and state not in allowed:
        raise ArgumentError(f"state={state!r}: give one of {', '.join(allowed)}")
    values = {name: _checked(name, value) for name, value in asked.items()}
    return matching.JobFilter(**values), default if state is None else (state,)


def _checked(name: str, value: Any) -> Any:
    if name == "task":
        return check_task_name(getattr(value, "name", value))
    if name == "tag":
        return check_tag(value)
    if name == "queue":
        try:
            return check_queue_name(value)
        except ValueError as error:
            raise ArgumentError(f"queue={error}") from None
    if name == "error_class":
        if isinstance(value, str) and value and value.isprintable():
            return value
        raise ArgumentError(
            f"error_class={value!r}: give the name of a class, such as 'ValueError'"
        )
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ArgumentError(
            f"{name}={value!r}: give a datetime with a time zone, such as "
            "datetime.now(UTC) - timedelta(hours=1)"
        )
    return value


# --- part by part --------------------------------------------------------------------


def _act(
    act: Callable[[Sequence[UUID], str], ActReport],
    allowed: Sequence[str],
    default: Sequence[str],
    which: Mapping[str, Any],
    *,
    limit: int | None,
    dry_run: bool,
) -> JobsReport:
    wanted, states = _read(which, allowed, default)
    _check_limit(limit)
    using = get_settings().database
    _refuse_transaction(using)
    if dry_run:
        return _count(wanted, states, limit or COUNT_LIMIT, using)
    run = _Run(act, wanted, limit, using)
    for state in states:
        run.through(state)
    return run.report()


def _check_limit(limit: object) -> None:
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is not None and not (is_number and limit > 0):  # type: ignore[operator] # a number
        raise ArgumentError(f"limit={limit!r}: give a whole number above 0, or None")


def _refuse_transaction(using: str) -> None:
    try:
        with transaction.atomic(using=using, durable=True):
            return
    except RuntimeError:
        raise RelayError(
            "an act on many jobs commits part by part, and the caller is inside "
            "atomic(), where all rows would stay locked: call it outside"
        ) from None


def _count(
    wanted: matching.JobFilter, states: Sequence[str], limit: int, using: str
) -> JobsReport:
    found = 0
    for state in states:
        if found < limit:
            found += matching.count(wanted, state, limit=limit - found, using=using)
    return JobsReport(found=found, is_capped=found == limit)


class _Run:
    """One act, and what it has come to."""

    def __init__(
        self,
        act: Callable[[Sequence[UUID], str], ActReport],
        wanted: matching.JobFilter,
        limit: int | None,
        using: str,
    ) -> None:
        self._act = act
        self._wanted = wanted
        self._limit = limit
        self._using = using
        self._found = self._done = self._asked = self._skipped = 0

    def report(self) -> JobsReport:
        return JobsReport(
            found=self._found,
            done=self._done,
            asked=self._asked,
            skipped=self._skipped,
            is_capped=self._found == self._limit,
        )

    def through(self, state: str) -> None:
        """Act on all jobs of the state, as far as the limit goes."""
        after = UUID(int=0)
        while most := self._most():
            ids = matching.find(
                self._wanted, state, limit=most, after=after, using=self._using
            )
            is_changed = False
            for start in range(0, len(ids), CHUNK):
                is_changed |= self._change(ids[start : start + CHUNK])
            if len(ids) < most:
                return
            if not matching.leaves_on_act(state):
                after = ids[-1]
            elif not is_changed:
                return  # others are at the same jobs

    def _most(self) -> int:
        return PAGE if self._limit is None else min(PAGE, self._limit - self._found)

    def _change(self, ids: Sequence[UUID]) -> bool:
        with transaction.atomic(using=self._using):
            report = self._act(ids, self._using)
        self._found += len(ids)
        self._done += len(report.done)
        self._asked += len(report.asked)
        self._skipped += len(report.skipped)
        return bool(report.done or report.asked)
