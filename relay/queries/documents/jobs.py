"""Documents of jobs: one, its past, why it does not run, and groups of failures."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = [
    "AttemptDocument",
    "Cause",
    "CountDocument",
    "FailureDocument",
    "FailurePage",
    "HistoryDocument",
    "JobDetail",
    "JobDocument",
    "JobPage",
    "JobPast",
    "LogDocument",
    "Status",
    "StepDocument",
]


Status = Literal["queued", "running", "completed", "failed", "cancelled"]
"""The state in five words: what waits, for whatever, is queued."""


class CountDocument(TypedDict):
    """How many there are; with capped, so many at least."""

    count: int
    capped: bool


# --- jobs ----------------------------------------------------------------------------


class JobDocument(TypedDict):
    """One job.

    type and payload are the names of command jobs: the task, and the one argument or
    else {"args": …, "kwargs": …}.
    """

    id: str
    task: str
    type: str
    queue: str
    priority: int
    state: str
    status: Status
    args: Any
    kwargs: Any
    payload: Any
    tags: list[str]
    attempt: int
    failures: int
    crashes: int
    losses: int
    max_retries: int
    timeout: float | None
    created_at: str
    run_at: str
    started_at: str | None
    finished_at: str | None
    deadline_at: str | None
    expires_at: str | None
    cancel_requested_at: str | None
    duration: float | None
    worker_id: str | None
    worker: str | None
    schedule_id: str | None
    schedule: str | None
    occurrence_at: str | None
    workflow_id: str | None
    replay_of: str | None
    unique_key: str | None
    error_class: str | None
    error: str | None
    progress: Any
    result: Any


class AttemptDocument(TypedDict):
    """One attempt: of those that did not succeed what went wrong."""

    attempt: int
    outcome: str
    worker_id: str | None
    worker: str | None
    started_at: str | None
    ended_at: str | None
    duration: float | None
    error_class: str | None
    error: str | None
    traceback: str | None


class HistoryDocument(TypedDict):
    """One thing that happened to a job."""

    at: str
    event: str
    attempt: int | None
    actor: str | None
    worker_id: str | None
    detail: Any


class LogDocument(TypedDict):
    """What one attempt has logged and printed."""

    attempt: int
    at: str
    text: str


class StepDocument(TypedDict):
    """A step of a job that is done."""

    name: str
    attempt: int
    done_at: str
    value: Any


class JobPast(TypedDict, total=False):
    """What one job has besides if it is asked for."""

    attempts: list[AttemptDocument]
    history: list[HistoryDocument]
    logs: list[LogDocument]
    steps: list[StepDocument]


class JobDetail(JobDocument, JobPast):
    """One job with all of it; version is another after each change of its row."""

    meta: Any
    version: str
    replays: list[str]


class JobPage(TypedDict):
    """A page of jobs; next and previous are cursors, None at the ends."""

    results: list[JobDocument]
    next: str | None
    previous: str | None


class Cause(TypedDict):
    """Why a job does not run: a code, what it means here, and what to do."""

    cause: str
    summary: str
    remedy: str
    detail: dict[str, Any]


class FailureDocument(TypedDict):
    """Failed jobs of one task with one error; filter finds them."""

    id: str
    task: str
    error_class: str | None
    error: str | None
    count: int
    queues: list[str]
    first_at: str | None
    last_at: str | None
    sample: str
    filter: str


class FailurePage(TypedDict):
    """Groups of failures, the largest first; looked_at is how many jobs were read."""

    results: list[FailureDocument]
    looked_at: int
    capped: bool
