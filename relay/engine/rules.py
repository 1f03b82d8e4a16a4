"""What statements over jobs of many tasks are told of them: retention, on_failure.

Tasks are above the engine: register() declares here what their jobs' ends need.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from relay import origin
from relay.conf import LONGEST, get_settings
from relay.engine import enqueue_log
from relay.engine.new_job import NewJob
from relay.retention import DEFAULT, Default, EndState, Retention

__all__ = [
    "FAILURE_CLASS",
    "TOLD_HERE",
    "Follower",
    "declare",
    "expiry",
    "keeps",
    "parted",
    "retention",
    "told",
    "values",
]

# The class of what a follower is given; named, as it is above the engine.
FAILURE_CLASS: Final = "relay.failure.Failure"

_NOTHING_SAID: Final = Retention()


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """The task that is enqueued when a job has failed for good.

    Attributes:
        max_retries: None takes the settings'.
        timeout: of each of its attempts; None for ever.
    """

    task: str
    queue: str
    priority: int
    max_retries: int | None
    timeout: timedelta | None = None
    tags: tuple[str, ...] = ()


# By the task's name: only those that say anything.
_retentions: dict[str, Retention] = {}
_followers: dict[str, Follower] = {}


def declare(task: str, retention: Retention, on_failure: Follower | None) -> None:
    """Take in what a task says of the ends of its jobs."""
    _retentions.pop(task, None)
    _followers.pop(task, None)
    if retention != _NOTHING_SAID:
        _retentions[task] = retention
    if on_failure is not None:
        _followers[task] = on_failure


# --- retention -----------------------------------------------------------------------


def retention(said: Retention, queue: str) -> Retention:
    """Return how long the jobs are kept of a task that says this, in this queue."""
    settings = get_settings()
    of_queue = settings.queue_retention.get(queue, _NOTHING_SAID)
    return said.within(of_queue).within(settings.retention)


def keeps() -> str:
    """Return the document that expiry() reads: what tasks, queues and settings say."""
    settings = get_settings()
    return json.dumps(
        {
            state: {
                "tasks": _said(_retentions, state),
                "queues": _said(settings.queue_retention, state),
                "else": seconds(getattr(settings.retention, state)),
            }
            for state in ("failed", "cancelled")
        }
    )


def _said(by_name: Any, state: EndState) -> dict[str, float | None]:
    said = {name: getattr(retention, state) for name, retention in by_name.items()}
    return {name: seconds(keep) for name, keep in said.items() if keep is not DEFAULT}


def seconds(keep: timedelta | Default | None) -> float | None:
    """Return how long as seconds that the clock can be moved by; None for ever."""
    return min(keep, LONGEST).total_seconds() if isinstance(keep, timedelta) else None


def expiry(state: str) -> str:
    """Return the SQL of the expires_at of relay_job AS job, which ends in a state.

    A unique key that is held for longer keeps the row. The statement is given
    values().

    Args:
        state: SQL that gives 'failed' or 'cancelled'.
    """
    # A key that is there with null is for ever: -> tells it from one that is not.
    keep = f"""make_interval(secs => (coalesce(
            %(keeps)s::jsonb -> ({state}) -> 'tasks' -> job.task,
            %(keeps)s::jsonb -> ({state}) -> 'queues' -> job.queue,
            %(keeps)s::jsonb -> ({state}) -> 'else') #>> '{{}}')::float8)"""
    return f"""CASE
        WHEN job.unique_until > clock_timestamp() + {keep} THEN job.unique_until
        ELSE clock_timestamp() + {keep} END"""


# --- on_failure ----------------------------------------------------------------------

# Where a statement enqueues the followers, after its CTE moved: that has id, task,
# queue, attempt, state, error_class and error_message of what it has changed.
TOLD_HERE: Final = "-- on_failure\n"

# In the statement that fails the job: one is as durable as the other. The id is a
# UUIDv7, which PostgreSQL makes itself only since 18. A fifo queue has no priorities.
_TOLD: Final = f""", told AS (
    INSERT INTO relay_job (id, created_at, run_at, state, task, queue, priority,
                           max_retries, timeout_ms, tags, args)
    SELECT encode(set_bit(set_bit(overlay(
               uuid_send(gen_random_uuid())
               PLACING substring(int8send(
                   floor(extract(epoch FROM clock_timestamp()) * 1000)::int8) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
           clock_timestamp(), clock_timestamp(), 'queued', follower.task,
           follower.queue,
           CASE WHEN EXISTS (
               SELECT FROM relay_queue
               WHERE name = follower.queue AND policy = 'fifo'
           ) THEN 0 ELSE follower.priority END,
           follower.max_retries, follower.timeout_ms, follower.tags,
           jsonb_build_object('kwargs', jsonb_build_object(), 'args', jsonb_build_array(
               jsonb_build_object(
                   '__relay__', 'dataclass', 'class', '{FAILURE_CLASS}',
                   'value', jsonb_build_object(
                       'job_id', jsonb_build_object(
                           '__relay__', 'UUID', 'value', moved.id),
                       'task', moved.task, 'queue', moved.queue,
                       'attempt', moved.attempt, 'error_class', moved.error_class,
                       'error_message', moved.error_message))))
    FROM moved
    JOIN jsonb_to_recordset(%(followers)s::jsonb) AS follower(
        after text, task text, queue text, priority int, max_retries int,
        timeout_ms int, tags text[]
    ) ON follower.after = moved.task
    WHERE moved.state = 'failed'
    RETURNING jsonb_build_array(
        id, task, queue, priority, max_retries, args::text)::text AS follower
)
"""  # noqa: S608 - constants only


def told(statement: str) -> str:
    """Return the statement, which enqueues followers if any task names one.

    It then answers with them too, behind its own rows, in one column more: parted()
    has to read it.
    """
    if not _followers:
        return statement
    moves, answer = statement.split(TOLD_HERE)
    return (
        f"{moves}{_TOLD}SELECT answer.*, told.follower FROM ({answer}) AS answer "  # noqa: S608 - constants only
        "FULL JOIN told ON false"
    )


def parted(cursor: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the statement's own rows of what told() answers; count and log the others.

    To be called once what it has done is committed.
    """
    if not rows or cursor.description[-1].name != "follower":
        return rows
    made = [json.loads(row[-1]) for row in rows if row[-1] is not None]
    if made:
        jobs = [
            NewJob(UUID(job_id), task, queue, args, max_retries, priority)
            for job_id, task, queue, priority, max_retries, args in made
        ]
        with origin.asked_by("on_failure", None):
            enqueue_log.note(jobs, {})
    return [row[:-1] for row in rows if row[-1] is None]


def values() -> dict[str, str]:
    """Return what statements with expiry() and TOLD_HERE are given."""
    most = get_settings().max_retries if _followers else 0
    return {
        "keeps": keeps(),
        "followers": json.dumps(
            [
                {
                    "after": after,
                    "task": follower.task,
                    "queue": follower.queue,
                    "priority": follower.priority,
                    "max_retries": (
                        most if follower.max_retries is None else follower.max_retries
                    ),
                    "timeout_ms": follower.timeout
                    and follower.timeout // timedelta(milliseconds=1),
                    "tags": list(follower.tags) or None,
                }
                for after, follower in _followers.items()
            ]
        ),
    }
