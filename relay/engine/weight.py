"""How often a queue is claimed from first, where a worker is told no weights."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from relay.conf import check_queue_name, get_settings
from relay.engine.connection import fetch_all
from relay.exceptions import UnknownQueue

__all__ = ["LARGEST_WEIGHT", "set_weight"]

LARGEST_WEIGHT: Final = 1_000

# A queue without a row gets one only if the caller knows it, as with a pause; it weighs
# 1 without.
SET_WEIGHT: Final = """
WITH stored AS MATERIALIZED (
    SELECT name FROM relay_queue WHERE name = %(queue)s
), known AS (
    SELECT %(queue)s AS name WHERE %(known)s OR EXISTS (SELECT FROM stored)
), changed AS (
    INSERT INTO relay_queue AS queue (name, weight)
    SELECT name, %(weight)s FROM known
    WHERE %(weight)s <> 1 OR EXISTS (SELECT FROM stored)
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight
    WHERE queue.weight <> excluded.weight
    RETURNING name, weight
), noted AS (
    INSERT INTO relay_history (at, event, actor, detail)
    SELECT clock_timestamp(), 'weight', %(actor)s,
           jsonb_build_object('queue', name, 'weight', weight)
    FROM changed
    RETURNING id
)
SELECT EXISTS (SELECT FROM noted) FROM known
"""


def set_weight(
    queue: str,
    weight: int,
    *,
    actor: str | None,
    using: str,
    known: Collection[str] = (),
) -> bool:
    """Let workers that start without -q claim first from the queue so often.

    Return whether that is new. Workers that run keep the weight that they started with.

    Args:
        weight: 1 to LARGEST_WEIGHT.
        known: names that may get a row besides those of settings and of rows.

    Raises:
        UnknownQueue: nothing names the queue.
        ValueError: the name cannot name a queue, or the weight is none.

    Transaction: one statement; joins the caller's on Django's connection.
    """
    check_queue_name(queue)
    _check_weight(weight)
    values = {
        "queue": queue,
        "weight": weight,
        "known": queue in known or queue in get_settings().queues,
        "actor": actor,
    }
    rows = fetch_all(SET_WEIGHT, values, using=using)
    if not rows:
        raise UnknownQueue(
            f"no settings, task or row names the queue {queue!r}: add it to "
            "RELAY['QUEUES'] or correct the name"
        )
    return bool(rows[0][0])


def _check_weight(weight: object) -> None:
    is_whole = isinstance(weight, int) and not isinstance(weight, bool)
    if is_whole and weight in range(1, LARGEST_WEIGHT + 1):
        return
    raise ValueError(
        f"weight={weight!r}: give a whole number from 1 to {LARGEST_WEIGHT:,}"
    )
