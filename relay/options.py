"""What a task and an enqueue may be told, and the checks of it.

Each refusal names the value, the reason and the remedy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections

from relay.conf import MOST, check_queue_name
from relay.exceptions import ArgumentError
from relay.labels import check_meta, check_tags
from relay.nearest import unknown
from relay.retention import DEFAULT, Default, Retention
from relay.retry import BackoffRule, Errors, RetryRules
from relay.unique import Unique

if TYPE_CHECKING:
    from relay.failure import Failure
    from relay.tasks import Task

__all__ = [
    "DEFAULT",
    "MAX_JOBS",
    "Default",
    "EnqueueOptions",
    "TaskOptions",
    "can_limit_memory",
    "check_enqueue_options",
    "check_task_name",
    "check_task_options",
    "name_of",
    "split_deadline",
]

# Source: docs/reference/tasks.md, "Options". The columns hold more; these are what an
# option may mean, and what the table's own checks admit.
PRIORITIES: Final = range(-100, 101)
MAX_RETRIES: Final = range(MOST + 1)
MAX_ATTEMPTS: Final = range(1, MOST + 2)
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 29, tzinfo=UTC)
# timeout_ms is a 32-bit integer: 24.8 days.
SHORTEST_TIMEOUT: Final = timedelta(milliseconds=1)
LONGEST_TIMEOUT: Final = timedelta(days=24)
# Of isolated tasks. Source: docs/explanation/isolation.md, "Constants".
MAX_JOBS: Final = 100
_LEAST_MEMORY_BYTES: Final = 32 * 1024 * 1024
_MOST_MEMORY_BYTES: Final = 1 << 46
_TASK_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")


class TaskOptions(TypedDict, total=False):
    """What @task takes.

    Attributes:
        name: what the task is called in rows and by enqueue(name); its default is
            module.function.
        queue: the queue of its jobs, 'default' unless given.
        priority: -100 to 100, higher first; 0 unless given.
        max_retries: attempts that may raise, less the first; 0 runs a job once.
        max_attempts: the same with the first, by the word of Django's proposal.
        backoff: when a job that raised runs again: a Backoff, a timedelta, a list of
            them, a function of the failures and the error, or a rule for each class
            of errors.
        retry_on: only errors of these classes are retried, and what Retry asks for.
        give_up_on: errors of these classes are not; the most specific class decides.
        retry_until: no retry starts later than so long after the job was made, or
            than this instant: then it fails.
        retention: how long completed jobs are kept; None for ever, 0 not at all; or a
            Retention, for each way to end and for results.
        on_failure: the task that is enqueued, with a Failure, when a job has failed
            for good.
        unique: what makes a job a duplicate of another, and what then.
        sensitive: the names of arguments that are encrypted in the row and shown
            nowhere; True for all of them and the result.
        transactional: run the handler and finish its job in one transaction of the
            alias RELAY["DATABASE"], so that what it writes there is written once.
        timeout: how long one attempt may run before it is ended and charged as a
            failure; 1 ms to 24 days, None for ever.
        soft_timeout: after how long SoftTimeout is raised in the handler, which may
            catch it to clean up; shorter than timeout.
        capture_logs: whether what an attempt logs is kept beside its job: True,
            False, or "failed" for attempts that do not complete; RELAY["CAPTURE_LOGS"]
            unless given.
        capture_stdout: whether what it prints is kept with its log.
        statement_timeout: how long one database statement of the handler may take; no
            longer than timeout, which it is unless given.
        isolation: "process" runs each of its jobs in a process apart, which it alone
            can crash, and which can be killed; None runs them in the worker's slots.
        memory_limit: bytes that a handler may take there, from 32 MiB; one that wants
            more fails with MemoryLimit. On Linux only. None for no limit.
        max_jobs: how many jobs such a process runs before another takes its place;
            100 unless given.
        tags: texts by which its jobs are found, up to 20.
        permission: of Django's, as 'billing.charge', that people and clients need
            besides relay's own to have it run through a surface; code is not asked.
    """

    name: str
    queue: str
    priority: int
    max_retries: int
    max_attempts: int
    backoff: BackoffRule | Mapping[type[BaseException], BackoffRule]
    retry_on: Errors
    give_up_on: Errors
    retry_until: timedelta | datetime | None
    retention: timedelta | Retention | None
    on_failure: Task[[Failure], Any]
    unique: Unique | None
    sensitive: Sequence[str] | Literal[True]
    transactional: bool
    timeout: timedelta | None
    soft_timeout: timedelta | None
    capture_logs: bool | Literal["failed"]
    capture_stdout: bool
    statement_timeout: timedelta | None
    isolation: Literal["process"] | None
    memory_limit: int | None
    max_jobs: int
    tags: Sequence[str]
    permission: str | None


class EnqueueOptions(TypedDict, total=False):
    """What using() and enqueue(name) take.

    Attributes:
        run_at: an aware datetime before which the job does not start.
        run_in: the same as a delay from now; a negative one means now.
        queue, priority, max_retries: instead of the task's.
        id: the job's id; enqueueing it again while the job is there does nothing.
        unique: instead of the task's; None takes no key.
        sensitive: besides the task's, as where its code is not at hand.
        timeout: instead of the task's; None for ever.
        deadline: an aware datetime, or a timedelta from now, after which no attempt of
            the job starts: it fails instead, uncharged.
        on_commit: the alias of another database: the job is enqueued once the open
            transaction there commits, at once if there is none.
        tags: besides the task's.
        meta: a small dict that the job carries: not an argument, and not encrypted.
        outside_transaction: enqueue the job at once over a connection of its own, so
            that it stays if the caller's transaction is rolled back.
    """

    run_at: datetime | None
    run_in: timedelta | None
    queue: str
    priority: int
    max_retries: int
    id: UUID
    unique: Unique | None
    sensitive: Sequence[str] | Literal[True]
    timeout: timedelta | None
    deadline: datetime | timedelta | None
    on_commit: str | None
    tags: Sequence[str]
    meta: Mapping[str, Any] | None
    outside_transaction: bool


def _check_number(name: str, value: object, allowed: range) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise ArgumentError(
            f"{name}={value!r}: give a whole number from {allowed[0]} to {allowed[-1]}"
        )


def _check_queue(value: object) -> None:
    try:
        check_queue_name(value)
    except ValueError as error:
        raise ArgumentError(f"queue={error}") from None


def _check_instant(name: str, value: object) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ArgumentError(
            f"{name}={value!r}: give a datetime with a time zone, such as "
            "datetime.now(UTC) + timedelta(hours=1)"
        )
    if not EARLIEST <= value <= LATEST:
        raise ArgumentError(
            f"{name}={value.isoformat()}: give an instant from {EARLIEST:%Y-%m-%d} to "
            f"{LATEST:%Y-%m-%d}"
        )


def _check_from_now(name: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise ArgumentError(
            f"{name}={value!r}: give a timedelta, such as timedelta(minutes=10)"
        )
    try:
        is_in_range = datetime.now(UTC) + max(value, timedelta(0)) <= LATEST
    except OverflowError:
        is_in_range = False
    if not is_in_range:
        raise ArgumentError(
            f"{name}={value}: that is after {LATEST:%Y-%m-%d}; give a shorter delay"
        )


def _check_timeout(name: str, value: object) -> None:
    if value is not None and not (
        isinstance(value, timedelta) and SHORTEST_TIMEOUT <= value <= LONGEST_TIMEOUT
    ):
        raise ArgumentError(
            f"{name}={value!r}: give a timedelta of 1 ms to {LONGEST_TIMEOUT.days} "
            "days, or None for no limit"
        )


def _check_deadline(options: Mapping[str, Any]) -> None:
    deadline = options.get("deadline")
    if deadline is None:
        return
    if not isinstance(deadline, timedelta):
        _check_instant("deadline", deadline)
    elif deadline <= timedelta(0):
        raise ArgumentError(
            f"deadline={deadline!r}: give a timedelta above 0, or an instant"
        )
    else:
        _check_from_now("deadline", deadline)
    due = options.get("run_in" if isinstance(deadline, timedelta) else "run_at")
    if due is not None and due >= deadline:
        raise ArgumentError(
            f"deadline={deadline!r} is not after the due time {due!r}: the job could "
            "never start; give a later deadline"
        )


def split_deadline(
    deadline: datetime | timedelta | None,
) -> tuple[datetime | None, timedelta | None]:
    """Return a deadline as an instant, or else as a delay from now."""
    if isinstance(deadline, timedelta):
        return None, deadline
    return deadline, None


def _check_sensitive(value: object) -> None:
    if value is True:
        return
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if is_sequence and all(isinstance(name, str) for name in value):  # type: ignore[attr-defined] # a Sequence
        return
    # Not the value: where a sensitive argument is passed by mistake, it is one.
    raise ArgumentError(
        f"sensitive is a {type(value).__name__}: give the names of arguments, such as "
        'sensitive=("card",), or True for all'
    )


def _check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    if not options.keys() <= known:
        raise ArgumentError(f"unknown option {unknown(options.keys() - known, known)}")
    if "queue" in options:
        _check_queue(options["queue"])
    if "priority" in options:
        _check_number("priority", options["priority"], PRIORITIES)
    if "max_retries" in options:
        _check_number("max_retries", options["max_retries"], MAX_RETRIES)
    if "sensitive" in options:
        _check_sensitive(options["sensitive"])
    _check_timeout("timeout", options.get("timeout"))
    unique = options.get("unique")
    if unique is not None and not isinstance(unique, Unique):
        raise ArgumentError(
            f"unique={unique!r}: give a relay.Unique, such as Unique(), or None"
        )
    if "tags" in options:
        check_tags(options["tags"])


def _check_capture(options: Mapping[str, Any]) -> None:
    logs, stdout = (
        options.get("capture_logs", True),
        options.get("capture_stdout", False),
    )
    if not isinstance(logs, bool) and logs != "failed":
        raise ArgumentError(f'capture_logs={logs!r}: give True, False or "failed"')
    if not isinstance(stdout, bool):
        raise ArgumentError(f"capture_stdout={stdout!r}: give True or False")
    if stdout and logs is False:
        raise ArgumentError(
            "capture_stdout=True: what is printed is kept with the log, and "
            'capture_logs is False; make that True or "failed", or leave it out'
        )


_TASK_OPTIONS: Final = frozenset(TaskOptions.__annotations__)
_ENQUEUE_OPTIONS: Final = frozenset(EnqueueOptions.__annotations__)


def check_task_options(options: Mapping[str, Any]) -> None:
    _check_options(options, _TASK_OPTIONS)
    if "name" in options:
        check_task_name(options["name"])
    _check_capture(options)
    if "max_attempts" in options:
        _check_number("max_attempts", options["max_attempts"], MAX_ATTEMPTS)
        if "max_retries" in options:
            raise ArgumentError(
                "max_attempts and max_retries are both given: give one of them"
            )
    timeout, soft_timeout = options.get("timeout"), options.get("soft_timeout")
    _check_timeout("soft_timeout", soft_timeout)
    _check_timeout("statement_timeout", options.get("statement_timeout"))
    if timeout is not None and soft_timeout is not None and soft_timeout >= timeout:
        raise ArgumentError(
            f"soft_timeout={soft_timeout!r} is not shorter than timeout={timeout!r}: "
            "the handler would be stopped before it is warned; give a shorter one"
        )
    RetryRules.of(options)
    Retention.of(options.get("retention"))
    transactional = options.get("transactional", False)
    if not isinstance(transactional, bool):
        raise ArgumentError(f"transactional={transactional!r}: give True or False")
    _check_isolation(options)
    permission = options.get("permission")
    if permission is not None and not isinstance(permission, str):
        raise ArgumentError(
            f"permission={permission!r}: give a permission of Django's, such as "
            "'billing.charge', or None"
        )


def can_limit_memory() -> bool:
    """Tell whether this system holds a process to a limit of its memory."""
    return sys.platform == "linux"


def _check_isolation(options: Mapping[str, Any]) -> None:
    isolation = options.get("isolation")
    if isolation not in (None, "process"):
        raise ArgumentError(
            f'isolation={isolation!r}: give "process", or None for the worker\'s slots'
        )
    if isolation is None:
        for name in ("memory_limit", "max_jobs"):
            if options.get(name) is not None:
                raise ArgumentError(
                    f"{name}={options[name]!r} without isolation: only a process apart "
                    'can have one; add isolation="process"'
                )
    limit = options.get("memory_limit")
    if limit is not None and (
        isinstance(limit, bool)
        or not isinstance(limit, int)
        or not _LEAST_MEMORY_BYTES <= limit <= _MOST_MEMORY_BYTES
    ):
        raise ArgumentError(
            f"memory_limit={limit!r}: give bytes, at least 32 MiB, such as "
            "256 * 1024 * 1024, or None for no limit"
        )
    if "max_jobs" in options:
        _check_number("max_jobs", options["max_jobs"], range(1, MOST + 1))


def check_enqueue_options(options: Mapping[str, Any]) -> None:
    _check_options(options, _ENQUEUE_OPTIONS)
    run_at, run_in = options.get("run_at"), options.get("run_in")
    if run_at is not None and run_in is not None:
        raise ArgumentError("run_at and run_in are both given: give one of them")
    if run_at is not None:
        _check_instant("run_at", run_at)
    if run_in is not None:
        _check_from_now("run_in", run_in)
    _check_deadline(options)
    on_commit = options.get("on_commit")
    if on_commit is not None and not (
        isinstance(on_commit, str) and on_commit in connections.settings
    ):
        raise ArgumentError(
            f"on_commit={on_commit!r}: give an alias of DATABASES, such as "
            f"{DEFAULT_DB_ALIAS!r}"
        )
    if "id" in options and not isinstance(options["id"], UUID):
        raise ArgumentError(f"id={options['id']!r}: give a uuid.UUID")
    check_meta(options.get("meta"))
    _check_outside(options)


def _check_outside(options: Mapping[str, Any]) -> None:
    outside = options.get("outside_transaction", False)
    if not isinstance(outside, bool):
        raise ArgumentError(f"outside_transaction={outside!r}: give True or False")
    if outside and options.get("on_commit") is not None:
        raise ArgumentError(
            f"outside_transaction=True and on_commit={options['on_commit']!r}: the "
            "one enqueues before the caller's commit, the other after it; give one"
        )


def check_task_name(name: object) -> str:
    if isinstance(name, str) and _TASK_NAME.fullmatch(name):
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    if callable(name):
        raise ArgumentError(f"{name!r} is no name of a task: call its enqueue(...)")
    raise ArgumentError(
        f"{name!r} cannot name a task: use 1 to 200 characters without spaces"
    )


def name_of(function: Callable[..., Any]) -> str:
    """Return what a task is called whose name nobody has given.

    Raises:
        ArgumentError: workers could not find the function by it.
    """
    module, name = function.__module__, function.__qualname__
    if name != function.__name__ or name == "<lambda>":
        reason = "it does not stand at the top level of its module"
    elif module == "__main__":
        reason = "it stands in the program's main module, which workers do not import"
    else:
        return check_task_name(f"{module}.{name}")
    raise ArgumentError(
        f"@task on {module}.{name}: {reason}; move it into an app's tasks.py, or give "
        "it a name with @task(name=...)"
    )
