"""A handler and its job's finish in one transaction: both take place, or neither.

The finish is the last statement before COMMIT, so that the job's row is locked only
while the commit is under way. Source: docs/explanation/transactional.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error as DatabaseFailure

from relay.conf import get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.connection import LONGEST_TIMEOUT, is_outage
from relay.engine.finish import Completed, Written, completions
from relay.exceptions import LeaseLost, RelayError, SettingsError

__all__ = ["run", "run_alone"]

logger = logging.getLogger("relay.worker")

# Whoever is stopped between the finish and its commit holds the row's lock; for no
# longer than a lease, which is when others may take the job.
_BOUND: Final = "SET LOCAL idle_in_transaction_session_timeout = {milliseconds}"

# The lock waits for a COMMIT that is still under way in the server: without it the row
# would be seen as it was before.
_LOOK: Final = """
SELECT state, attempt, worker_id FROM relay_job WHERE id = %(id)s FOR NO KEY UPDATE
"""
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '5s'"
# Before each look at a row whose commit went unanswered.
_LOOK_AFTER_SECONDS: Final = (0.0, 0.2, 1.0, 3.0)
# The server's own word for a commit of which it is not known whether it took place.
_COMPLETION_UNKNOWN: Final = "40003"
_MILLISECOND: Final = timedelta(milliseconds=1)


class _Lost(LeaseLost):
    """Raised here and by nobody else."""


class _Progress:
    """How far a transaction has come."""

    __slots__ = ("is_committed", "is_finished")

    def __init__(self) -> None:
        self.is_finished = False
        self.is_committed = False

    def note_commit(self) -> None:
        self.is_committed = True


def run(
    job: ClaimedJob,
    call: Callable[[], object],
    complete: Callable[[object], Completed],
    *,
    worker_id: UUID,
) -> Written:
    """Call a handler and finish its job, in one transaction of Django's connection.

    Where the job was given to another meanwhile, everything is rolled back. The
    on_commit() callbacks run after the commit; what they raise is logged.

    Args:
        call: the handler; nothing interrupts what follows it.
        complete: makes of what it returned the finish to write.

    Raises:
        RelayError: the handler changed the row of its own job.
        BaseException: what the handler, or the commit, raised; nothing was written, or
            else the job has ended and every fenced write to it comes to nothing.

    Transaction: its own; inside another, as in a test, a savepoint of it.
    """
    alias = get_settings().database
    connection = connections[alias]
    progress = _Progress()
    done = None
    try:
        with _atomic(connection):
            if len(connection.savepoint_ids) == 0:
                # The first one, so that it tells the commit from the others' errors.
                transaction.on_commit(progress.note_commit, using=alias, robust=True)
            done = complete(call())
            _finish(connection, done, worker_id)
            progress.is_finished = True
    except _Lost as lost:
        if _look(connection, job.id) == ("running", job.attempt, worker_id):
            # After the rollback it is this attempt's again, and would be for ever.
            raise RelayError(
                f"the handler changed or deleted the row of its own job {job.id}: what "
                "it wrote was rolled back; leave relay_job's running rows alone"
            ) from None
        return _told_lost(job, lost)
    except BaseException as error:
        if done is None or not progress.is_finished:
            raise
        if not progress.is_committed:
            if not _is_doubtful(error):
                raise
            found = _find_out(connection, job, done, worker_id)
            if found is None:
                raise
            return found
        _report_callback(job, error)
    return Written(done.id, done.attempt, done.result)


def _find_out(
    connection: BaseDatabaseWrapper, job: ClaimedJob, done: Completed, worker_id: UUID
) -> Written | None:
    """Return what an unanswered COMMIT came to; None if it is undone, or unknown."""
    connection.close()
    row = _look(connection, done.id)
    if row == ("running", done.attempt, worker_id) or row == ():
        # Where nothing was seen: what is written for the job from here on is fenced,
        # and comes to nothing if the COMMIT took place after all.
        return None
    # One that is gone has ended: only such are deleted.
    if row is not None and row[:2] != ("completed", done.attempt):
        return _told_lost(job, LeaseLost(done.id, done.attempt))
    return Written(done.id, done.attempt, done.result)


def run_alone(
    call: Callable[[], object], complete: Callable[[object], Completed]
) -> Completed:
    """Call a handler in a transaction as run() does, of a job that has no row."""
    with _atomic(connections[get_settings().database]):
        return complete(call())


def _atomic(connection: BaseDatabaseWrapper) -> Any:
    if not connection.in_atomic_block and not connection.get_autocommit():
        raise SettingsError(
            f"DATABASES[{connection.alias!r}]['AUTOCOMMIT'] is False: Django then ends "
            "no transaction, and a transactional task cannot run; set it to True"
        )
    return transaction.atomic(using=connection.alias)


def _finish(connection: BaseDatabaseWrapper, done: Completed, worker_id: UUID) -> None:
    """Write the finish, fenced as any other.

    Raises:
        LeaseLost: another holds the job, or it has ended.
    """
    lease = min(get_settings().lease, LONGEST_TIMEOUT)
    with connection.cursor() as cursor:
        cursor.execute(_BOUND.format(milliseconds=lease // _MILLISECOND))
        for statement, values in completions([done], worker_id=worker_id):
            cursor.execute(statement, values)
            if not cursor.fetchall():
                raise _Lost(done.id, done.attempt)


def _is_doubtful(error: BaseException) -> bool:
    """Tell whether error leaves open if the COMMIT that it ended took place."""
    if is_outage(error):
        return True
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and cause.sqlstate == _COMPLETION_UNKNOWN


def _look(connection: BaseDatabaseWrapper, job_id: UUID) -> tuple[Any, ...] | None:
    """Return state, attempt and worker of a job whose COMMIT went unanswered.

    Returns:
        None if the job is gone, and nothing, (), if it could not be read in time.
    """
    for seconds in _LOOK_AFTER_SECONDS:
        time.sleep(seconds)
        try:
            with _atomic(connection), connection.cursor() as cursor:
                cursor.execute(_LOCK_TIMEOUT)
                cursor.execute(_LOOK, {"id": job_id})
                row: tuple[Any, ...] | None = cursor.fetchone()
        except DatabaseFailure:
            connection.close()
        else:
            return row
    return ()


def _told_lost(job: ClaimedJob, lost: LeaseLost) -> Written:
    logger.warning(
        "lease lost: what the job wrote was rolled back",
        extra={
            "event": "job.lease_lost",
            "job_id": str(job.id),
            "task": job.task,
            "attempt": lost.attempt,
        },
    )
    return Written(job.id, lost.attempt, None)


def _report_callback(job: ClaimedJob, error: BaseException) -> None:
    logger.error(
        "an on_commit() callback of a completed job failed",
        extra={
            "event": "job.callback_failed",
            "job_id": str(job.id),
            "task": job.task,
        },
        exc_info=error,
    )
