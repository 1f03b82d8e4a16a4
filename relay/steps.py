"""Resumable steps: what a job has done is not done again by its next attempt.

A plain step and its record commit together, on Django's connection to relay's database;
only one attempt can have a record for a name. Source: docs/howto/resumable-steps.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import connections, transaction

from relay import sensitive
from relay.conf import get_settings
from relay.exceptions import ArgumentError, LeaseLost, UnknownTask
from relay.tasks import get_task

__all__ = ["StepOf", "arun_step", "run_step"]

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")

# Indexes: the primary key, and relay_step_name_idx. No row: the attempt holds the job
# no longer.
FIND: Final = """
SELECT step.id IS NOT NULL, step.value::text, job.args ? 'sealed'
FROM relay_job AS job
LEFT JOIN relay_step AS step ON step.job_id = job.id AND step.name = %(name)s
WHERE job.id = %(job_id)s AND job.state = 'running'
  AND job.attempt = %(attempt)s AND job.worker_id = %(worker_id)s
"""
# KEY SHARE: the row cannot be deleted meanwhile, and nothing else waits for it. If an
# earlier attempt's record is under way, this waits for it, and then writes nothing.
RECORD: Final = """
INSERT INTO relay_step (job_id, attempt, name, value)
SELECT job.id, job.attempt, %(name)s, %(value)s::jsonb
FROM relay_job AS job
WHERE job.id = %(job_id)s AND job.state = 'running'
  AND job.attempt = %(attempt)s AND job.worker_id = %(worker_id)s
FOR KEY SHARE
ON CONFLICT (job_id, name) DO NOTHING
RETURNING id
"""


class StepOf(NamedTuple):
    """One step of one attempt.

    Attributes:
        met: of the steps that this attempt has met, whether they are over.
        has_row: False where a test runs a handler without a job's row.
    """

    job_id: UUID
    task: str
    attempt: int
    worker_id: UUID
    name: str
    met: dict[str, bool]
    has_row: bool = True


class _Lost(Exception):
    """The record was not written: what the step did is to be rolled back."""


class _Found(NamedTuple):
    value: str | None
    is_sensitive: bool


def run_step(
    step: StepOf,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return what the step returned, calling its function if it has not been done.

    Raises:
        ArgumentError: the name cannot name a step, or this attempt has met it already.
        EncodeError: the function's value cannot be kept; what it did is rolled back.
        LeaseLost: the attempt no longer holds the job; as above.

    Transaction: one around the function and the record; inside the caller's atomic() a
    part of that.
    """
    _check(step)
    if iscoroutinefunction(function):
        raise ArgumentError(
            f"step {step.name!r}: {function!r} is a coroutine function; use "
            "`await current_job().astep(...)` for it"
        )
    alias = get_settings().database
    with _meeting(step) as is_again:
        if not step.has_row:
            _refuse_second(step, is_again)
            return function(*args, **kwargs)
        try:
            with transaction.atomic(using=alias):
                found = _find(step, alias)
                if found.value is None:
                    value = function(*args, **kwargs)
                    text = _encoded(step, value, found.is_sensitive)
                    _record(step, text, alias)
                    found = _Found(text, found.is_sensitive)
                else:
                    _refuse_second(step, is_again)
        except _Lost:
            found = _found_after_all(step, alias)
        return _decoded(step, found)


async def arun_step(
    step: StepOf,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """As run_step, for coroutines. A plain function runs in the job's own thread.

    Transaction: a coroutine function's record is written after it, by itself.
    """
    if not iscoroutinefunction(function):
        return await sync_to_async(run_step, thread_sensitive=True)(
            step, function, args, kwargs
        )
    _check(step)
    called: Callable[..., Awaitable[Any]] = function
    alias = get_settings().database
    with _meeting(step) as is_again:
        if not step.has_row:
            _refuse_second(step, is_again)
            return await called(*args, **kwargs)
        found = await sync_to_async(_find, thread_sensitive=True)(step, alias)
        if found.value is None:
            value = await called(*args, **kwargs)
            keep = sync_to_async(_keep, thread_sensitive=True)
            found = await keep(step, value, found.is_sensitive, alias)
        else:
            _refuse_second(step, is_again)
        return await sync_to_async(_decoded, thread_sensitive=True)(step, found)


def _check(step: StepOf) -> None:
    name: object = step.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError(
            f"{step.name!r} cannot name a step: use 1 to 200 printable characters"
        )
    try:
        step.name.encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            f"{step.name!r} cannot name a step: it holds half of a surrogate pair"
        ) from None


@contextmanager
def _meeting(step: StepOf) -> Iterator[bool]:
    """Note that the attempt meets a step; give whether it has done so before.

    Once the step is over it may be met again only if a rollback has taken it back.

    Raises:
        ArgumentError: the attempt is inside a step of this name.
    """
    is_again = step.met.get(step.name)
    if is_again is False:
        raise ArgumentError(
            f"this attempt is inside the step {step.name!r} already: give each step a "
            "name of its own"
        )
    step.met[step.name] = False
    try:
        yield is_again is True
    except BaseException:
        if is_again is None:
            del step.met[step.name]
        else:
            step.met[step.name] = is_again
        raise
    step.met[step.name] = True


def _refuse_second(step: StepOf, is_again: bool) -> None:
    if is_again:
        raise ArgumentError(
            f"this attempt has done the step {step.name!r} already: give each step a "
            "name of its own, such as f'charge {order_id}' in a loop"
        )


def _values(step: StepOf, **others: Any) -> dict[str, Any]:
    names = ("job_id", "attempt", "worker_id", "name")
    return {name: getattr(step, name) for name in names} | others


def _find(step: StepOf, alias: str) -> _Found:
    with connections[alias].cursor() as cursor:
        cursor.execute(FIND, _values(step))
        row = cursor.fetchone()
    if row is None:
        raise LeaseLost(step.job_id, step.attempt)
    is_done, value, is_sealed = row
    return _Found(value if is_done else None, is_sealed or _is_sensitive(step.task))


def _is_sensitive(task: str) -> bool:
    try:
        return bool(get_task(task).sensitive)
    except UnknownTask:  # a test's handler
        return False


def _record(step: StepOf, text: str, alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(RECORD, _values(step, value=text))
        if cursor.fetchone() is None:
            raise _Lost


def _keep(step: StepOf, value: Any, is_sensitive: bool, alias: str) -> _Found:
    text = _encoded(step, value, is_sensitive)
    try:
        _record(step, text, alias)
    except _Lost:
        return _found_after_all(step, alias)
    return _Found(text, is_sensitive)


def _found_after_all(step: StepOf, alias: str) -> _Found:
    """Return what an earlier attempt has recorded meanwhile: that one counts."""
    found = _find(step, alias)
    if found.value is None:
        raise LeaseLost(step.job_id, step.attempt)
    return found


def _encoded(step: StepOf, value: object, is_sensitive: bool) -> str:
    return sensitive.encode_step(
        value, step.job_id, step.name, is_sensitive=is_sensitive
    )


def _decoded(step: StepOf, found: _Found) -> Any:
    document = json.loads(found.value or "null")
    return sensitive.decode_step(document, step.job_id, step.name)
