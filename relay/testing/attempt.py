"""One attempt in the test's own thread, connection and transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome
from relay.exceptions import RelayError
from relay.worker import transactional
from relay.worker.executor import Executor
from relay.worker.reports import Reports

__all__ = ["Attempt", "run"]

logger = logging.getLogger("relay.testing")

# Jobs that enqueue jobs inline, one inside the other.
DEEPEST: Final = 50
_depth: ContextVar[int] = ContextVar("relay_testing_depth", default=0)


class Attempt:
    """What became of one attempt.

    Attributes:
        reports: what the handler told meanwhile, which the worker would write.
        outcome: what the worker would write.
        error: what the handler raised.
        logs: the messages that were logged meanwhile, those of relay's worker aside.
    """

    def __init__(
        self,
        reports: Reports,
        outcome: Outcome,
        error: BaseException | None,
        logs: tuple[str, ...],
    ) -> None:
        self.reports = reports
        self.outcome = outcome
        self.error = error
        self.logs = logs


class _Executor(Executor):
    """Keeps the connections, as a test's transaction hangs on them, and the error."""

    error: BaseException | None = None
    has_row = True

    def run_transactional(
        self,
        job: ClaimedJob,
        call: Callable[[], object],
        complete: Callable[[object], Completed],
    ) -> Outcome:
        """As in a worker; without a row there is no finish to write."""
        if self.has_row:
            return super().run_transactional(job, call, complete)
        return transactional.run_alone(call, complete)

    def clean(self) -> None:
        """Leave the connections alone."""

    def note_error(self, error: BaseException) -> None:
        """Keep the error for the test."""
        self.error = error


def run(job: ClaimedJob, worker_id: UUID, *, has_row: bool = True) -> Attempt:
    """Run the job's handler here.

    Inside a transaction, a handler that left it broken loses what it wrote, and its
    on_commit() callbacks run when it has ended: in a worker each of its statements or
    atomic() blocks would have committed by then.

    Raises:
        KeyboardInterrupt: the handler was interrupted.
    """
    depth = _depth.get()
    if depth >= DEEPEST:
        raise RelayError(
            f"jobs run inline are {depth} deep, each enqueued by the one before: use "
            'mode("manual") and drain(limit=...) for jobs that go on by themselves'
        )
    executor = _Executor(worker_id, Reports(has_row=has_row))
    executor.has_row = has_row
    token = _depth.set(depth + 1)
    try:
        with _logged() as logs, _committed(), _guarded():
            if executor.is_async(job):
                # async_to_sync takes over what the handler set in its context.
                run_here = async_to_sync(executor.run_async)
                outcome = copy_context().run(run_here, job)
            else:
                outcome = executor.run(job)
    finally:
        _depth.reset(token)
    if isinstance(executor.error, KeyboardInterrupt):
        raise executor.error
    return Attempt(executor.reports, outcome, executor.error, tuple(logs))


def _open_ones() -> list[BaseDatabaseWrapper]:
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block and not connection.needs_rollback
    ]


@contextmanager
def _guarded() -> Iterator[None]:
    """Go back to where the handler began in a transaction that it left broken."""
    # No atomic(): inside it a handler's atomic(durable=True) would be refused.
    places = [(connection, str(connection.savepoint())) for connection in _open_ones()]
    yield
    for connection, place in places:
        if connection.needs_rollback or _is_broken(connection):
            connection.needs_rollback = False
            connection.savepoint_rollback(place)
        else:
            connection.savepoint_commit(place)


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    session: Any = connection.connection
    status: TransactionStatus = session.info.transaction_status
    return status == TransactionStatus.INERROR


@contextmanager
def _committed() -> Iterator[None]:
    """Run the on_commit() callbacks that were registered inside."""
    before = [
        (connection, len(connection.run_on_commit)) for connection in _open_ones()
    ]
    yield
    for connection, count in before:
        while len(connection.run_on_commit) > count:
            entry: Any = connection.run_on_commit.pop(count)
            _, callback, is_robust = entry
            try:
                callback()
            except Exception:
                if not is_robust:
                    raise
                logger.exception("a robust on_commit() callback failed")


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "relay.worker":
            self.texts.append(record.getMessage())


@contextmanager
def _logged() -> Iterator[list[str]]:
    handler, root = _Messages(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.texts
    finally:
        root.removeHandler(handler)
