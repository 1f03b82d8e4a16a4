"""Run jobs in a test: all that wait, one of them, or a handler without a row."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from relay import sensitive
from relay.conf import get_settings
from relay.engine import finish
from relay.engine.claim import (
    HIGHEST,
    LOWEST,
    START,
    ClaimedJob,
    Span,
    read_claimed,
    send_claim,
)
from relay.engine.connection import EngineConnection
from relay.engine.promote import promote
from relay.exceptions import JobNotFound, RelayError, Retry, StateConflict
from relay.ids import uuid7
from relay.models import JobState
from relay.tasks import BoundTask, Task, all_tasks, get_task
from relay.testing import attempt as attempts
from relay.testing.session import JobLike, alias_of, engine_session, id_of, worker
from relay.worker import announcing

__all__ = [
    "Drained",
    "Outcome",
    "claim_one",
    "drain",
    "finish_one",
    "perform",
    "run_inline",
    "run_job",
]

R = TypeVar("R")

# A drain without a limit that runs more is taken for one that never ends.
MOST_JOBS: Final = 10_000

# In the order in which they became ready; within a queue the claim orders.
_READY_QUEUES: Final = """
SELECT queue FROM relay_job
WHERE state = 'queued' AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s))
GROUP BY queue ORDER BY min(ready_seq)
"""

_COUNT_READY: Final = """
SELECT count(*) FROM relay_job
WHERE state = 'queued' AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s))
"""

# The one that is due first, so that what it enqueues runs before later ones. A task
# that is not registered would be handed back for a day.
_HASTEN: Final = """
UPDATE relay_job SET run_at = LEAST(run_at, clock_timestamp())
WHERE id = (
    SELECT id FROM relay_job
    WHERE state = ANY(%(states)s) AND task = ANY(%(tasks)s)
      AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s))
    ORDER BY run_at, ready_seq LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
)
"""

_HASTEN_ONE: Final = """
UPDATE relay_job SET run_at = LEAST(run_at, clock_timestamp())
WHERE id = %(id)s AND state IN ('scheduled', 'retrying')
"""

_PLACE: Final = """
SELECT state, queue, priority, ready_seq FROM relay_job WHERE id = %(id)s
FOR NO KEY UPDATE
"""

_STATE: Final = "SELECT state FROM relay_job WHERE id = %(id)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[R]):
    """How one attempt ended.

    Attributes:
        state: what the job is now, or would be.
        result: what the function returned, after its way through JSON.
        error: what it raised.
        logs: the messages logged meanwhile.
        delay: until it is due again.
    """

    state: JobState
    result: R | None = None
    error: BaseException | None = None
    logs: tuple[str, ...] = ()
    delay: timedelta | None = None


@dataclass(slots=True, kw_only=True)
class Drained:
    """What drain() did.

    Attributes:
        ran: attempts that were started.
        states: how many of them left their job in which state.
        errors: what handlers raised, in order.
        jobs: the id of each attempt's job, in the order in which they ran.
    """

    ran: int = 0
    states: Counter[JobState] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)
    jobs: list[UUID] = field(default_factory=list)

    @property
    def completed(self) -> int:
        return self.states[JobState.COMPLETED]

    @property
    def retrying(self) -> int:
        return self.states[JobState.RETRYING]

    @property
    def failed(self) -> int:
        return self.states[JobState.FAILED]


# --- all that wait -------------------------------------------------------------------


def drain(
    queue: str | Sequence[str] | None = None,
    *,
    with_scheduled: bool = False,
    with_retries: bool = False,
    limit: int | None = None,
    raises: bool = False,
    using: str | None = None,
) -> Drained:
    """Run the jobs that are ready, and what they enqueue, until none is left.

    They run here, in this thread and transaction, as a worker with one slot would run
    them: by priority, in the order in which they became ready, without paused queues.

    Args:
        queue: only the jobs of this queue, or of these.
        with_scheduled: also what is due later, in the order of its times.
        with_retries: also what failed and is to run again, until it has ended.
        limit: the most attempts to start; what is left stays.
        raises: raise the first error of a handler, once its job is settled.

    Raises:
        RelayError: no limit was given and there is no end to it.

    Transaction: joins the caller's; in autocommit, as a worker's.
    """
    alias, drained = alias_of(using), Drained()
    queues = [queue] if isinstance(queue, str) else queue and list(queue)
    states = ["scheduled"] * with_scheduled + ["retrying"] * with_retries
    with worker(alias) as worker_id:
        while limit is None or drained.ran < limit:
            job = _claim_next(alias, worker_id, queues)
            if job is None:
                if _make_ready(alias, queues, states):
                    continue
                break
            if limit is None and drained.ran >= MOST_JOBS:
                raise _endless(alias, queues)
            outcome = finish_one(alias, job, worker_id)
            drained.ran += 1
            drained.states[outcome.state] += 1
            drained.jobs.append(job.id)
            if outcome.error is not None:
                drained.errors.append(outcome.error)
                if raises:
                    raise outcome.error
    return drained


def _claim_next(
    alias: str, worker_id: UUID, queues: Sequence[str] | None
) -> ClaimedJob | None:
    with engine_session(alias) as session:
        rows = session.execute(_READY_QUEUES, {"queues": queues}).fetchall()
        spans = [Span(queue, HIGHEST, LOWEST, START) for (queue,) in rows]
        return _claim(session, spans, worker_id) if spans else None


def _claim(
    session: EngineConnection, spans: Sequence[Span], worker_id: UUID
) -> ClaimedJob | None:
    cursor = send_claim(session, spans, limit=1, worker_id=worker_id)
    claimed = read_claimed(cursor, [span.queue for span in spans])
    return claimed[0] if claimed else None


def _make_ready(
    alias: str, queues: Sequence[str] | None, states: Sequence[str]
) -> bool:
    """Promote what is due, or else what is due first; tell whether there was any."""
    with engine_session(alias) as session:
        promoted, _ = promote(session)
        if promoted and _count_ready(session, queues):
            return True
        if not states:
            return False
        values = {"states": states, "tasks": list(all_tasks()), "queues": queues}
        if not session.execute(_HASTEN, values).rowcount:
            return False
        promoted, _ = promote(session)
        return promoted > 0


def _count_ready(session: EngineConnection, queues: Sequence[str] | None) -> int:
    row = session.execute(_COUNT_READY, {"queues": queues}).fetchone()
    return 0 if row is None else int(row[0])


def _endless(alias: str, queues: Sequence[str] | None) -> RelayError:
    with engine_session(alias) as session:
        left = _count_ready(session, queues)
    return RelayError(
        f"drain() has run {MOST_JOBS:,} jobs and {left:,} more are ready: if jobs "
        "enqueue themselves again, say how many to run with drain(limit=...)"
    )


# --- one of them ---------------------------------------------------------------------


def run_job(job: JobLike, *, using: str | None = None) -> Outcome[Any]:
    """Run this job now, whatever is ready before it or however late it is due.

    The row is settled as a worker would; an error of the handler is in the outcome.

    Args:
        job: what enqueue() returned, a row, or an id.

    Raises:
        StateConflict: it does not wait to be run, or its queue is paused.
        JobNotFound: its row is gone.
    """
    alias, job_id = alias_of(getattr(job, "using", None) or using), id_of(job)
    with worker(alias) as worker_id:
        return finish_one(alias, claim_one(alias, job_id, worker_id), worker_id)


def claim_one(alias: str, job_id: UUID, worker_id: UUID) -> ClaimedJob:
    """Claim this job by the engine's own claim: the first row at or above its place.

    Raises:
        StateConflict, JobNotFound: as run_job.
    """
    with engine_session(alias) as session:
        if session.execute(_HASTEN_ONE, {"id": job_id}).rowcount:
            promote(session)
        row = session.execute(_PLACE, {"id": job_id}).fetchone()
        if row is None:
            raise JobNotFound(job_id)
        state, queue, priority, ready_seq = row
        if state != "queued":
            raise StateConflict(job_id, "run", state)
        span = Span(queue, priority, priority, ready_seq - 1)
        claimed = _claim(session, [span], worker_id)
        if claimed is None or claimed.id != job_id:
            raise StateConflict(
                job_id,
                "run",
                state,
                reason=f"cannot be claimed: its queue {queue!r} is paused, or a "
                "limit holds it",
            )
        return claimed


def run_inline(job_id: UUID, alias: str) -> None:
    """Run a job that was just enqueued, if it is ready, and raise what it raised.

    Raises:
        Exception: the handler's own; its job is settled. A Retry is not raised.
    """
    with engine_session(alias) as session:
        row = session.execute(_STATE, {"id": job_id}).fetchone()
    if row is None or row[0] != "queued":
        return
    with worker(alias) as worker_id:
        try:
            job = claim_one(alias, job_id, worker_id)
        except StateConflict:
            return  # paused: it waits, as it would
        outcome = finish_one(alias, job, worker_id)
    if outcome.error is not None and not isinstance(outcome.error, Retry):
        raise outcome.error


def finish_one(alias: str, job: ClaimedJob, worker_id: UUID) -> Outcome[Any]:
    """Run a claimed job and write how it ended, both as a worker would."""
    begun_at = time.monotonic()
    attempt = attempts.run(job, worker_id)
    with engine_session(alias) as session:
        attempt.reports.write(session, worker_id, {job.id: job}, ended=[job.id])
        with session.block():
            if isinstance(attempt.outcome, finish.Written):
                sent = []
            elif isinstance(attempt.outcome, finish.Completed):
                sent = finish.send_completed(
                    session, [attempt.outcome], worker_id=worker_id
                )
            else:
                sent = finish.send_settled(
                    session,
                    [attempt.outcome],
                    worker_id=worker_id,
                    hand_back_limit=get_settings().unknown_task_limit,
                )
        states = finish.read_states(sent)
        row = session.execute(_STATE, {"id": job.id}).fetchone()
    announcing.tell_end(job, attempt.outcome, time.monotonic() - begun_at, states)
    return _told(attempt, JobState.COMPLETED if row is None else JobState(row[0]))


# --- without a row -------------------------------------------------------------------

_STATE_OF: Final = {
    "fail": JobState.FAILED,
    "cancel": JobState.CANCELLED,
    "release": JobState.QUEUED,
}


def perform(
    task: Task[..., R] | BoundTask[..., R] | str,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    attempt: int = 1,
    failures: int | None = None,
    max_retries: int | None = None,
) -> Outcome[R]:
    """Run a task's handler as one attempt of a job of which no row is made.

    Its arguments go through JSON; current_job() says what is given here.

    Args:
        attempt: which start of the job this is.
        failures: earlier ones that raised; all of them unless given.
        max_retries: how many are forgiven; the task's own unless given.

    Raises:
        ArgumentError: the arguments do not fit the task's signature.
        EncodeError: an argument cannot be carried; its path is named.
        UnknownTask: no task of this name is registered.
    """
    found = get_task(task) if isinstance(task, str) else task
    request = found.job(*args, **(kwargs or {}))
    values: dict[str, Any] = {
        "id": uuid7(),
        "task": request.task,
        "queue": request.queue,
        "priority": request.priority,
        "ready_seq": 0,
        "attempt": attempt,
        "args": json.loads(request.args),
        "failures": attempt - 1 if failures is None else failures,
        "crashes": 0,
        "max_retries": request.max_retries if max_retries is None else max_retries,
    }
    job = ClaimedJob._make(values.get(name) for name in ClaimedJob._fields)
    ended = attempts.run(job, uuid7(), has_row=False)
    if isinstance(ended.outcome, finish.Settled):
        return _told(ended, _STATE_OF.get(ended.outcome.verb, JobState.RETRYING))
    return _told(ended, JobState.COMPLETED)


def _told(attempt: attempts.Attempt, state: JobState) -> Outcome[Any]:
    outcome, result, delay = attempt.outcome, None, None
    if isinstance(outcome, finish.Settled):
        if state == JobState.RETRYING:
            delay = timedelta(seconds=outcome.delay_seconds)
    elif outcome.result is not None:
        result = sensitive.decode_result(json.loads(outcome.result), outcome.id)
    return Outcome(
        state=state, result=result, error=attempt.error, logs=attempt.logs, delay=delay
    )
