"""Statistics by the minute and by the hour: added to by workers, read for charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from relay.engine.connection import EngineConnection

__all__ = ["KEEP_HOURS", "KEEP_MINUTES", "NewStat", "add_stats", "prune_stats"]

# Source: docs/reference/metrics.md.
KEEP_MINUTES: Final = timedelta(hours=72)
KEEP_HOURS: Final = timedelta(days=90)

# Minute and hour in one statement: no later one could fail to make the one of the
# other. Index: relay_stat_place_idx, in whose order rows are locked, as other workers
# add to the same ones.
ADD: Final = """
INSERT INTO relay_stat AS stat (seconds, at, queue, task, outcome, count, run_seconds,
                                wait_seconds, run_buckets, wait_buckets)
SELECT span.seconds,
       date_bin(make_interval(secs => span.seconds), statement_timestamp(), 'epoch'),
       given.queue, given.task, given.outcome, given.jobs, given.run_s, given.wait_s,
       given.run, given.wait
FROM jsonb_to_recordset(%(rows)s::jsonb) AS given(
    queue text, task text, outcome text, jobs bigint, run_s float8, wait_s float8,
    run bigint[], wait bigint[])
CROSS JOIN (VALUES (60), (3600)) AS span(seconds)
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (seconds, at, queue, task, outcome) DO UPDATE SET
    count = stat.count + excluded.count,
    run_seconds = stat.run_seconds + excluded.run_seconds,
    wait_seconds = stat.wait_seconds + excluded.wait_seconds,
    run_buckets = ARRAY(
        SELECT mine + new
        FROM unnest(stat.run_buckets, excluded.run_buckets)
            WITH ORDINALITY AS pair(mine, new, place)
        ORDER BY place),
    wait_buckets = ARRAY(
        SELECT mine + new
        FROM unnest(stat.wait_buckets, excluded.wait_buckets)
            WITH ORDINALITY AS pair(mine, new, place)
        ORDER BY place)
"""

# Index: relay_stat_place_idx, from its start.
PRUNE: Final = """
WITH minutes AS MATERIALIZED (
    SELECT id FROM relay_stat
    WHERE seconds = 60 AND at < statement_timestamp() - %(minutes)s::interval
    ORDER BY at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), hours AS MATERIALIZED (
    SELECT id FROM relay_stat
    WHERE seconds = 3600 AND at < statement_timestamp() - %(hours)s::interval
    ORDER BY at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM relay_stat
WHERE id = ANY(ARRAY(SELECT id FROM minutes UNION ALL SELECT id FROM hours))
"""


class NewStat(NamedTuple):
    """What to add, of attempts that ended alike.

    Attributes:
        run, wait: counts by buckets.STAT_BOUNDS of those that had started.
    """

    queue: str
    task: str
    outcome: str
    jobs: int
    run_s: float
    wait_s: float
    run: Sequence[int]
    wait: Sequence[int]


def add_stats(connection: EngineConnection, rows: Sequence[NewStat]) -> None:
    """Add to the minute and the hour that it is, by the database's clock.

    Transaction: its own. What is sent again after a lost connection may count twice.
    """
    document: list[dict[str, Any]] = [row._asdict() for row in rows]
    connection.execute(ADD, {"rows": json.dumps(document)})


def prune_stats(connection: EngineConnection, *, limit: int = 1_000) -> int:
    """Delete at most limit minutes and limit hours that are old; return how many.

    Transaction: its own. Rows locked by others are skipped.
    """
    return connection.execute(
        PRUNE, {"minutes": KEEP_MINUTES, "hours": KEEP_HOURS, "limit": limit}
    ).rowcount
