"""Documents of what jobs need: queues, workers, schedules."""

from __future__ import annotations

from typing import Any, TypedDict

from relay.queries.documents.jobs import CountDocument

__all__ = [
    "FireDocument",
    "OccurrenceDocument",
    "QueueDocument",
    "ScheduleDetail",
    "ScheduleDocument",
    "SchedulePage",
    "UpcomingDocument",
    "WorkerCounts",
    "WorkerDetail",
    "WorkerDocument",
    "WorkerPage",
]


class QueueDocument(TypedDict):
    """One queue."""

    name: str
    is_named: bool
    policy: str
    paused: bool
    paused_at: str | None
    paused_until: str | None
    weight: int
    max_running: int | None
    key_limit: int | None
    latency: float
    queued: CountDocument
    running: CountDocument
    scheduled: CountDocument
    retrying: CountDocument
    workers: int
    slots: int


class WorkerDocument(TypedDict):
    """One child process that runs jobs."""

    id: str
    name: str
    state: str
    is_alive: bool
    kind: str
    host: str
    pid: int
    supervisor: str | None
    queues: list[str]
    concurrency: int
    running: int
    version: str
    started_at: str
    heartbeat_at: str
    lease_expires_at: str
    silent_for: float
    asked: str | None
    asked_at: str | None


class WorkerDetail(WorkerDocument):
    """One worker with what it says of itself, and the jobs it runs."""

    stats: Any
    jobs: list[str]


class WorkerPage(TypedDict):
    """A page of workers; next and previous are cursors, None at the ends."""

    results: list[WorkerDocument]
    next: str | None
    previous: str | None


class WorkerCounts(TypedDict):
    """How many workers are in each state, and what those that take jobs hold."""

    states: dict[str, int]
    alive: int
    lost_lately: int
    slots: int
    busy: int


class ScheduleDocument(TypedDict):
    """One schedule; when and words each say what cron, every and once_at say."""

    id: str
    name: str
    task: str
    args: Any
    kwargs: Any
    queue: str | None
    priority: int | None
    when: str
    words: str | None
    cron: str | None
    every: float | None
    once_at: str | None
    timezone: str
    starts_at: str | None
    ends_at: str | None
    excluded: str | None
    spread: float | None
    catch_up: str
    catch_up_window: float
    overlap: str
    success_within: float | None
    enabled: bool
    source: str
    next_due_at: str | None
    last_due_at: str | None
    last_success_at: str | None
    waiting_at: str | None
    finished_at: str | None
    retired_at: str | None
    created_at: str
    late_by: float
    is_late: bool
    is_unsuccessful: bool
    error: str | None


class FireDocument(TypedDict):
    """One run to come: the due instant, when it starts, and in the schedule's zone."""

    planned_at: str
    starts_at: str
    local: str
    note: str | None


class OccurrenceDocument(TypedDict):
    """What became of a due instant, or of count of them up to until_at."""

    due_at: str
    state: str
    job_id: str | None
    outcome: str | None
    reason: str | None
    count: int
    until_at: str | None


class ScheduleDetail(ScheduleDocument):
    """One schedule with its next runs and its latest occurrences."""

    next: list[FireDocument]
    occurrences: list[OccurrenceDocument]


class UpcomingDocument(TypedDict):
    """The first schedules that are in trouble, and the next ones that are due."""

    late: list[ScheduleDocument]
    next: list[ScheduleDocument]


class SchedulePage(TypedDict):
    """A page of schedules; next and previous are cursors, None at the ends."""

    results: list[ScheduleDocument]
    next: str | None
    previous: str | None
