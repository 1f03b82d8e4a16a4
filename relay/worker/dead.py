"""Children that have ended: what the parent tells of one, and handing its jobs back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg

from relay.conf import get_settings
from relay.engine.connection import EngineConnection
from relay.engine.crash import crash_delays
from relay.engine.finish import is_bad_row, read_finished, send_settled
from relay.engine.holdings import DeadChild, settle_dead_child
from relay.engine.lease import Ready, set_state
from relay.worker.stuck import read_timed_out

__all__ = ["hand_back", "read_dead"]

logger = logging.getLogger("relay.worker")


def read_dead(message: Mapping[str, Any]) -> DeadChild:
    """Return the child that a message of the parent's tells of."""
    settings = get_settings()
    return DeadChild(
        worker_id=UUID(message["worker"]),
        started=[(UUID(job_id), attempt) for job_id, attempt in message["started"]],
        delays=crash_delays(settings.backoff, settings.crash_limit),
        timed_out=read_timed_out(message),
        is_charged=message["is_charged"],
        reason=message["reason"],
    )


def hand_back(connection: EngineConnection, child: DeadChild) -> list[Ready]:
    """Give back what a dead child held, and say in its row that it has stopped.

    Rows that PostgreSQL refuses to change so must not hold up whoever does this: from
    a stopped worker the reaper takes them. A repeat finds nothing left to do.

    Returns:
        what became ready.

    Raises:
        psycopg.Error: the database is in trouble; it is to be repeated.

    Transaction: some of its own.
    """
    count, ready = 0, list[Ready]()
    try:
        count, ready = _settle(connection, child)
    except psycopg.Error as error:
        if not is_bad_row(error):
            raise
        logger.critical(
            "PostgreSQL refuses to hand back jobs of a dead child: they are left to "
            "the reaper",
            extra={
                "event": "worker.refused",
                "worker_id": str(child.worker_id),
                "error": str(error),
            },
        )
    set_state(connection, [child.worker_id], "stopped")
    if count:
        logger.warning(
            "jobs of a dead child handed back",
            extra={
                "event": "worker.killed",
                "worker_id": str(child.worker_id),
                "jobs": count,
                "job_ids": [str(job_id) for job_id, _ in child.started],
                "reason": child.reason,
            },
        )
    return ready


def _settle(connection: EngineConnection, child: DeadChild) -> tuple[int, list[Ready]]:
    settings = get_settings()
    read_finished(
        send_settled(
            connection,
            child.timed_out,
            worker_id=child.worker_id,
            hand_back_limit=settings.unknown_task_limit,
        )
    )
    return settle_dead_child(connection, child, crash_limit=settings.crash_limit)
