"""queued → running, owned by a worker: the claim, and where it begins to look."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from relay.engine.connection import EngineConnection

__all__ = ["ClaimedJob", "Marks", "QueueOrder", "Span", "read_claimed", "send_claim"]

HIGHEST: Final = 100
LOWEST: Final = -100
# A ready_seq below every real one: a search from the start.
START: Final = -1

# Index: relay_job_ready_idx. MATERIALIZED keeps LIMIT exact. NO KEY: a child row's
# foreign key must not hide its job. States are literals: a parameter loses the partial
# index under a generic plan. RETURNING has no order: sort in Python. The paused queues
# are looked up once per statement (relay_queue_paused_idx, nearly always empty). A
# unique key that is held until the job starts goes here.
CLAIM: Final = """
WITH picked AS MATERIALIZED (
    SELECT ready.id
    FROM unnest(
        %(queues)s::text[], %(high)s::int2[], %(low)s::int2[], %(marks)s::bigint[]
    ) AS span(queue, high, low, mark)
    CROSS JOIN LATERAL (
        SELECT id FROM relay_job
        WHERE state = 'queued' AND concurrency_key IS NULL AND queue = span.queue
          AND priority <= span.high AND priority >= span.low AND ready_seq > span.mark
        ORDER BY priority DESC, ready_seq
        LIMIT %(limit)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS ready
    WHERE span.queue <> ALL (ARRAY(
        SELECT name FROM relay_queue
        WHERE paused_at IS NOT NULL
          AND (paused_until IS NULL OR paused_until > clock_timestamp())
    ))
    LIMIT %(limit)s
)
UPDATE relay_job AS job
SET state = 'running', attempt = attempt + 1, worker_id = %(worker_id)s,
    started_at = clock_timestamp(),
    unique_key = CASE WHEN job.unique_scope LIKE 'started:%%' THEN NULL
                 ELSE job.unique_key END
FROM picked WHERE job.id = picked.id
  AND EXISTS (
    SELECT FROM relay_worker
    WHERE id = %(worker_id)s AND state NOT IN ('lost', 'stopped')
  )
RETURNING job.id, job.task, job.queue, job.priority, job.ready_seq, job.attempt,
          job.args, job.failures, job.crashes, job.max_retries, job.timeout_ms,
          job.deadline_at,
          extract(epoch FROM job.deadline_at - clock_timestamp())::float8,
          date_part('epoch', job.started_at - job.run_at), job.meta->>'otel'
"""


class ClaimedJob(NamedTuple):
    """A job this worker holds, under the token (worker_id, attempt)."""

    id: UUID
    task: str
    queue: str
    priority: int
    ready_seq: int
    attempt: int
    # None where Python cannot hold what jsonb can: decode_arguments() refuses it.
    args: dict[str, Any] | None
    failures: int
    crashes: int
    max_retries: int
    timeout_ms: int | None = None
    deadline_at: datetime | None = None
    # The deadline by this machine's monotonic clock, which nobody sets.
    start_by: float | None = None
    # How long it has waited since it was due.
    wait_s: float = 0.0
    # The context in which it was enqueued, as JSON; see relay.traces.
    trace: str | None = None


class Span(NamedTuple):
    """A stretch of one queue's priorities, searched above a mark."""

    queue: str
    high: int
    low: int
    mark: int


@dataclass(slots=True)
class _Place:
    """How far one priority of one queue was claimed.

    Attributes:
        mark: the highest ready_seq claimed here; never goes down.
        cursor: where the next search begins if it is below the mark: START, or the
            place a sweep has reached; None where the search begins at the mark.
    """

    mark: int
    cursor: int | None = None


class Marks:
    """Where a claimer begins to look, so that dead rows below cost nothing.

    A row whose transaction commits late can lie below a mark: sweep() makes the next
    claims search from the start, and they go on from the last row found while they
    find any. A hint about such a row lowers the search at once. Not thread-safe:
    nothing else may be called between spans() and the note() of its claim.
    Source: docs/explanation/claiming.md.
    """

    def __init__(self) -> None:
        self._places: dict[str, dict[int, _Place]] = {}
        self._rank: dict[str, int] = {}
        self._has_cursors = False

    def spans(self, queues: Iterable[str]) -> list[Span]:
        """Return what to search: every key of the queues not known to be claimed."""
        self._rank = {queue: rank for rank, queue in enumerate(queues)}
        spans: list[Span] = []
        for queue in self._rank:
            places = self._places.get(queue, {})
            high = HIGHEST
            for priority in sorted(places, reverse=True):
                place = places[priority]
                if place.cursor == START:
                    continue  # the gap around it runs through it
                if high > priority:
                    spans.append(Span(queue, high, priority + 1, START))
                begin = place.mark if place.cursor is None else place.cursor
                spans.append(Span(queue, priority, priority, begin))
                high = priority - 1
            if high >= LOWEST:
                spans.append(Span(queue, high, LOWEST, START))
        return spans

    def note(self, claimed: Sequence[ClaimedJob], *, limit: int) -> None:
        """Take in what a claim of at most limit jobs over spans() returned.

        Args:
            claimed: in the order of read_claimed().
        """
        found: dict[tuple[str, int], int] = {}
        for job in claimed:
            key = (job.queue, job.priority)
            found[key] = max(found.get(key, START), job.ready_seq)
        for (queue, priority), highest in found.items():
            places = self._places.setdefault(queue, {})
            place = places.get(priority)
            if place is None:
                places[priority] = _Place(highest)
            elif highest > place.mark:
                place.mark = highest
                place.cursor = None
            else:
                place.cursor = highest
                self._has_cursors = True
        if self._has_cursors:
            self._clear_searched(claimed[-1] if len(claimed) >= limit else None)

    def _clear_searched(self, last: ClaimedJob | None) -> None:
        """Clear the cursors of what was searched to its end.

        That is all that comes before the last row of a full claim in the order of the
        search: a priority that has nothing left must not be walked again and again
        while a lower one fills every claim.
        """
        end = (len(self._rank),) if last is None else _key(self._rank, last)
        self._has_cursors = False
        for queue, places in self._places.items():
            rank = self._rank.get(queue, len(self._rank))
            for priority, place in places.items():
                if place.cursor is None:
                    continue
                if (rank, -priority) < end:
                    place.cursor = None
                else:
                    self._has_cursors = True

    def sweep(self) -> None:
        """Search every priority from the start with the next claims."""
        for places in self._places.values():
            for place in places.values():
                place.cursor = START
        self._has_cursors = True

    def hint(self, queue: str, priority: int, ready_seq: int) -> None:
        """Take in that a row of this ready_seq has become visible."""
        place = self._places.get(queue, {}).get(priority)
        if place is not None and ready_seq <= place.mark:
            begin = ready_seq - 1
            if place.cursor is None or place.cursor > begin:
                place.cursor = begin
                self._has_cursors = True


class QueueOrder:
    """In which order a claim looks at a worker's queues.

    Args:
        weights: queue to weight, in the order given by the operator.
        strict: always in the given order; a lower queue waits until higher are empty.
        rng: source of the weighted random order.
    """

    def __init__(
        self,
        weights: dict[str, int],
        *,
        strict: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self.names = tuple(weights)
        self._weights = weights
        self._strict = strict or len(weights) < 2
        self._random = (rng or random.Random()).random  # noqa: S311 - fairness only

    def next(self) -> Sequence[str]:
        """Return the queues for one claim: each first as often as its weight says."""
        if self._strict:
            return self.names
        # Efraimidis and Spirakis: sorting by u**(1/weight) draws without replacement
        # in proportion to the weights.
        return sorted(
            self.names,
            key=lambda name: self._random() ** (1 / self._weights[name]),
            reverse=True,
        )


def send_claim(
    connection: EngineConnection,
    spans: Sequence[Span],
    *,
    limit: int,
    worker_id: UUID,
) -> Any:
    """Send the claim of at most limit jobs; read_claimed() takes the answer.

    Jobs come from the spans in their order, each span from its highest priority down.
    Each carries its attempt: finish writes only while (worker_id, attempt) is still
    on the row. A worker that is lost, stopped or has no row is given nothing, and
    paused queues are not searched.

    Transaction: that of the enclosing EngineConnection.block(), or its own.
    """
    return connection.execute(
        CLAIM,
        {
            "queues": _array(span.queue for span in spans),
            "high": _array(span.high for span in spans),
            "low": _array(span.low for span in spans),
            "marks": _array(span.mark for span in spans),
            "limit": limit,
            "worker_id": worker_id,
        },
        prepare=connection.prepares,
    )


def _array(items: Iterable[str | int]) -> str:
    """Return numbers or names of queues, which need no quoting, as PostgreSQL's text.

    psycopg looks for a common type of a list's items, and quotes: four times as long.
    """
    return f"{{{','.join(map(str, items))}}}"


def read_claimed(
    cursor: Any, queues: Sequence[str], *, sent_at: float | None = None
) -> list[ClaimedJob]:
    """Return what a claim over these queues took, in the order in which to run it.

    Args:
        sent_at: when the claim was sent, by the monotonic clock; what is left until a
            deadline counts from here, so that it never ends late. Now unless given.

    Raises:
        psycopg.OperationalError: the connection was lost; whether rows were claimed
            is not known: compare with holdings.held().
    """
    rank = {queue: place for place, queue in enumerate(queues)}
    jobs = [ClaimedJob._make(row) for row in cursor.fetchall()]
    if any(job.start_by is not None for job in jobs):
        jobs = _with_deadlines(jobs, time.monotonic() if sent_at is None else sent_at)
    jobs.sort(key=lambda job: (rank[job.queue], -job.priority, job.ready_seq))
    return jobs


def _with_deadlines(jobs: list[ClaimedJob], sent_at: float) -> list[ClaimedJob]:
    """Turn the seconds that the server says are left into moments of our clock."""
    return [
        job if job.start_by is None else job._replace(start_by=sent_at + job.start_by)
        for job in jobs
    ]


def _key(rank: dict[str, int], job: ClaimedJob) -> tuple[int, int]:
    """Return where a job stands in the order in which a claim searches."""
    return rank[job.queue], -job.priority
