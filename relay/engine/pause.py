"""Whether a queue's jobs start: pause and resume."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

from django.db import transaction

from relay.conf import check_queue_name, get_settings
from relay.engine import wakeup
from relay.engine.connection import fetch_all
from relay.exceptions import UnknownQueue

__all__ = ["pause", "resume"]


# A queue without a row is paused only if the caller knows it: an upsert of a mistyped
# name would make a queue that nobody serves.
PAUSE: Final = """
WITH changed AS (
    INSERT INTO relay_queue AS queue (name, paused_at, paused_until)
    SELECT %(queue)s, clock_timestamp(), %(until)s::timestamptz
    WHERE %(known)s OR EXISTS (SELECT FROM relay_queue WHERE name = %(queue)s)
    ON CONFLICT (name) DO UPDATE
    SET paused_at = CASE
            WHEN queue.paused_until <= clock_timestamp() THEN excluded.paused_at
            ELSE coalesce(queue.paused_at, excluded.paused_at) END,
        paused_until = excluded.paused_until
    RETURNING name, paused_until
)
INSERT INTO relay_history (at, event, actor, detail)
SELECT clock_timestamp(), 'pause', %(actor)s,
       jsonb_build_object('queue', name, 'until', paused_until)
FROM changed
RETURNING id
"""


RESUME: Final = """
WITH changed AS (
    UPDATE relay_queue SET paused_at = NULL, paused_until = NULL
    WHERE name = %(queue)s AND paused_at IS NOT NULL
    RETURNING name
)
INSERT INTO relay_history (at, event, actor, detail)
SELECT clock_timestamp(), 'resume', %(actor)s, jsonb_build_object('queue', name)
FROM changed
RETURNING id
"""


# Index: relay_job_ready_idx. What a worker woken for the queue will find first.
FIRST_READY: Final = """
SELECT priority, ready_seq FROM relay_job
WHERE state = 'queued' AND concurrency_key IS NULL AND queue = %(queue)s
ORDER BY priority DESC, ready_seq
LIMIT 1
"""


def pause(
    queue: str,
    *,
    until: datetime | None = None,
    actor: str | None,
    using: str,
    known: Collection[str] = (),
) -> None:
    """Start no more jobs of the queue, until resume() or the given instant.

    Running jobs go on. Pausing a paused queue sets a new end.

    Args:
        until: aware; None is until resumed.
        known: names that may be paused besides those of settings and of rows: what
            registered tasks name, which the engine cannot see.

    Raises:
        UnknownQueue: nothing names the queue.
        ValueError: until has no time zone, or the name cannot name a queue.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    check_queue_name(queue)
    if until is not None and until.utcoffset() is None:
        raise ValueError(f"{until!r} has no time zone: give an aware datetime")
    is_known = queue in known or queue in get_settings().queues
    if not fetch_all(
        PAUSE,
        {"queue": queue, "until": until, "known": is_known, "actor": actor},
        using=using,
    ):
        raise UnknownQueue(
            f"no settings, task or row names the queue {queue!r}: add it to "
            "RELAY['QUEUES'] or correct the name"
        )


def resume(queue: str, *, actor: str | None, using: str) -> bool:
    """Let the queue's jobs start again; return whether it was paused.

    Transaction: joins the caller's on Django's connection, or its own. The wake-up
    goes out after commit.
    """
    with transaction.atomic(using=using):
        if not fetch_all(RESUME, {"queue": queue, "actor": actor}, using=using):
            return False
        for priority, ready_seq in fetch_all(
            FIRST_READY, {"queue": queue}, using=using
        ):
            wakeup.announce(using, queue, priority, ready_seq)
    return True
