"""An ended job once more, as a new one: replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from relay import sensitive
from relay.engine import enqueue_log, wakeup
from relay.engine.acts import ActReport, Why, written
from relay.engine.connection import fetch_all
from relay.engine.new_job import NewJob
from relay.exceptions import StateConflict
from relay.ids import uuid7

__all__ = ["replay", "replay_many"]

_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_UNDER_WAY: Final = "has a replay that has not ended"

# Two statements on purpose: the second must see what was committed while the first
# waited for its locks.
LOCK_ORIGINALS: Final = """
SELECT id, state, statement_timestamp() FROM relay_job
WHERE id = ANY(%(ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
"""


# Primary key, for jobs that are locked and have ended; relay_job_replay_idx, by OFFSET
# once for each of them, for the earlier replays. A condition on the state, or a join,
# would have all that have ended read, or all replays, where the statistics know of
# none. A replay that ended after this one was asked for was under way at that moment:
# it counts as well. Not copied: due time and deadline, which have passed, the unique
# key, and the link to a schedule.
REPLAY: Final = """
WITH chosen AS MATERIALIZED (
    SELECT id, replay_id, nextval('relay_ready_seq') AS ready_seq
    FROM (
        SELECT original.id, pair.replay_id
        FROM unnest(%(ids)s::uuid[], %(replay_ids)s::uuid[]) AS pair(id, replay_id)
        JOIN relay_job AS original ON original.id = pair.id
        WHERE NOT EXISTS (
            SELECT FROM relay_job AS earlier
            WHERE earlier.replay_of = original.id
              AND (earlier.state NOT IN ('completed', 'failed', 'cancelled')
                   OR earlier.finished_at >= %(asked_at)s)
            OFFSET 0
        )
        ORDER BY original.ready_seq
    ) AS ordered
), made AS (
    INSERT INTO relay_job (
        id, replay_of, created_at, run_at, ready_seq, state, task, queue, priority,
        max_retries, timeout_ms, concurrency_key, tags, meta, args
    )
    SELECT chosen.replay_id, original.id, clock_timestamp(), clock_timestamp(),
           chosen.ready_seq, 'queued', original.task, original.queue,
           CASE WHEN original.priority <> 0 AND EXISTS (
               SELECT FROM relay_queue
               WHERE name = original.queue AND policy = 'fifo'
           ) THEN 0 ELSE original.priority END,
           original.max_retries, original.timeout_ms,
           original.concurrency_key, original.tags, original.meta - 'row_keep_s',
           original.args
    FROM chosen JOIN relay_job AS original ON original.id = chosen.id
    RETURNING id, replay_of, task, queue, priority, max_retries, ready_seq,
              CASE WHEN args ? 'sealed' OR %(is_logged)s THEN args::text END AS args
), noted AS (
    INSERT INTO relay_history (job_id, at, event, attempt, actor, detail)
    SELECT original.id, clock_timestamp(), 'replay', original.attempt, %(actor)s,
           jsonb_build_object('job', made.id) || coalesce(%(why)s::jsonb, '{}')
    FROM made JOIN relay_job AS original ON original.id = made.replay_of
)
SELECT replay_of, id, task, queue, priority, max_retries, ready_seq, args FROM made
"""


# Arguments that are encrypted are so for one job: the copy is encrypted anew, unseen
# before the commit.
RESEAL: Final = """
UPDATE relay_job SET args = %(args)s::jsonb WHERE id = %(id)s RETURNING id
"""


def replay(
    job_id: UUID,
    *,
    actor: str | None,
    using: str,
    why: Why | None = None,
    arguments: Callable[[UUID], str] | None = None,
) -> UUID:
    """Enqueue a new job like this ended one and return its id.

    The new job has the task, arguments and options of the old one, full budgets, and
    replay_of. While it has not ended a second replay of the same job is refused, so
    of several people who ask at once one gets a run.

    Args:
        arguments: given the new job's id, returns the JSON text of what it is called
            with instead, encrypted for that id where it is to be.

    Raises:
        StateConflict: the job has not ended, does not exist, or its last replay had
            not ended when this one was asked for; nothing was changed.
        MissingKey: its arguments are encrypted, and their key is not at hand in this
            process; nothing was changed.
        DecodeError: its encrypted arguments were altered; nothing was changed.

    Transaction: joins the caller's on Django's connection, or its own; under READ
    COMMITTED, as a stricter level hides the replays of others. The wake-up goes out
    after commit.
    """
    replays, conflicts = _replay(
        [job_id], actor=actor, using=using, why=why, arguments=arguments
    )
    if conflicts:
        raise conflicts[0]
    return replays[job_id]


def replay_many(
    job_ids: Iterable[UUID], *, actor: str | None, using: str, why: Why | None = None
) -> ActReport:
    """Enqueue a new job like each of these that has ended; see replay().

    Transaction: one; joins the caller's on Django's connection.
    """
    replays, conflicts = _replay(job_ids, actor=actor, using=using, why=why)
    return ActReport(tuple(sorted(replays)), tuple(conflicts))


def _reseal(text: str, original: UUID, replay_id: UUID, *, using: str) -> None:
    made = sensitive.reseal_arguments(json.loads(text), original, replay_id)
    if made is not None:
        fetch_all(RESEAL, {"id": replay_id, "args": json.dumps(made)}, using=using)


def _replay(
    job_ids: Iterable[UUID],
    *,
    actor: str | None,
    using: str,
    why: Why | None,
    arguments: Callable[[UUID], str] | None = None,
) -> tuple[dict[UUID, UUID], list[StateConflict]]:
    ids = sorted(set(job_ids))
    made: dict[UUID, NewJob] = {}
    with transaction.atomic(using=using):
        locked = fetch_all(LOCK_ORIGINALS, {"ids": ids}, using=using)
        states: dict[UUID, str] = {job_id: state for job_id, state, _ in locked}
        ended = [job_id for job_id in ids if states.get(job_id) in _ENDED]
        if ended:
            values = {
                "ids": ended,
                "replay_ids": [uuid7() for _ in ended],
                "asked_at": locked[0][2],
                "actor": actor,
                "why": written(why),
                "is_logged": enqueue_log.has_arguments(),
            }
            made = _make(values, using=using, arguments=arguments)
    enqueue_log.note(list(made.values()), {})
    return {original: job.id for original, job in made.items()}, [
        StateConflict(
            job_id,
            "replay",
            states.get(job_id),
            reason=_UNDER_WAY if states.get(job_id) in _ENDED else None,
        )
        for job_id in ids
        if job_id not in made
    ]


def _make(
    values: dict[str, Any],
    *,
    using: str,
    arguments: Callable[[UUID], str] | None,
) -> dict[UUID, NewJob]:
    """Enqueue the new jobs; return them by the ids of the old ones."""
    made: dict[UUID, NewJob] = {}
    ready: list[tuple[str, int, int]] = []
    for (
        original,
        replay_id,
        task,
        queue,
        priority,
        retries,
        ready_seq,
        args,
    ) in fetch_all(REPLAY, values, using=using):
        if arguments is not None:
            args = arguments(replay_id)
            fetch_all(RESEAL, {"id": replay_id, "args": args}, using=using)
        elif args is not None:
            _reseal(args, original, replay_id, using=using)
        made[original] = NewJob(replay_id, task, queue, args or "", retries, priority)
        ready.append((queue, priority, ready_seq))
    for wake_up in wakeup.lowest(ready):
        wakeup.announce(using, *wake_up)
    return made
