"""Insert a job outside the caller's transaction: it stays if that is rolled back."""

from __future__ import annotations

import contextlib

import psycopg
from django.db import connections

from relay.engine import enqueue_log, wakeup
from relay.engine.connection import connect
from relay.engine.enqueue import insert_with
from relay.engine.new_job import NewJob
from relay.exceptions import ArgumentError

__all__ = ["insert"]


def insert(job: NewJob, *, using: str) -> None:
    """Insert the job over a connection opened for it, and wake workers.

    Raises:
        ArgumentError: the job has a unique key. If the caller's transaction held it,
            this would wait for that, and that for this.
        django.db.DatabaseError: as from any statement; OperationalError too where no
            connection can be had, or something has locked the table for 5 s.

    Transaction: its own, committed on return.
    """
    if job.unique is not None:
        raise ArgumentError(
            f"using(outside_transaction=True) of {job.task} with a unique key: the "
            "caller's transaction may hold it, and both would wait for each other; "
            "add unique=None"
        )
    with (
        connections[using].wrap_database_errors,
        connect(using, role="duty", name="enqueue") as connection,
    ):
        with connection.block():
            ready_seq = insert_with(connection, job)
        if enqueue_log.is_on():
            enqueue_log.log_jobs([job], {})
        if ready_seq is not None:
            with contextlib.suppress(psycopg.Error):  # it is there: polling finds it
                wakeup.notify_with(connection, [(job.queue, job.priority, ready_seq)])
