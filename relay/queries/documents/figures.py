"""Documents of figures: statistics, and the system."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from relay.queries.documents.jobs import CountDocument
from relay.queries.documents.places import QueueDocument

__all__ = [
    "ActivityDocument",
    "CheckDocument",
    "DurationsDocument",
    "ReadinessDocument",
    "SeriesDocument",
    "SoundnessDocument",
    "StatsDocument",
    "SystemDocument",
    "TableDocument",
    "TotalsDocument",
    "WorkersDocument",
]


class DurationsDocument(TypedDict):
    """How long attempts took, or had waited, in seconds; None of none."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class TotalsDocument(TypedDict):
    """What became of jobs in one stretch of time."""

    at: str
    queue: str | None
    task: str | None
    completed: int
    failed: int
    cancelled: int
    retried: int
    snoozed: int
    run: DurationsDocument
    wait: DurationsDocument


class SeriesDocument(TypedDict):
    """Totals, one a step; or one for each queue and task."""

    since: str
    until: str
    step: float | None
    results: list[TotalsDocument]


class ActivityDocument(TypedDict):
    """How many attempts of each queue ended how, one dict of counts a step.

    A queue of which none ended is not there, nor is an outcome of a step.
    """

    since: str
    until: str
    step: float
    queues: dict[str, list[dict[str, int]]]


class WorkersDocument(TypedDict):
    """How many workers are in which state; slots of those that claim, and busy ones."""

    running: int
    quiet: int
    draining: int
    lost: int
    slots: int
    busy: int


class StatsDocument(TypedDict):
    """Queues, workers and what the last hour and day came to."""

    at: str
    status: dict[str, CountDocument]
    jobs: dict[str, CountDocument]
    queues: list[QueueDocument]
    workers: WorkersDocument
    last_hour: TotalsDocument
    last_day: TotalsDocument


class CheckDocument(TypedDict):
    """One message of a system check."""

    id: str
    level: str
    message: str
    hint: str | None


class TableDocument(TypedDict):
    """One table: its size with indexes, and rows as PostgreSQL estimates them."""

    name: str
    size_bytes: int
    index_bytes: int
    live_rows: int
    dead_rows: int
    vacuumed_at: str | None


class SystemDocument(TypedDict):
    """What runs here, with which settings, on what."""

    version: str
    python: str
    django: str
    postgresql: str
    database: str
    settings: dict[str, Any]
    checks: list[CheckDocument]
    migrations: dict[str, list[str]]
    tables: list[TableDocument]
    oldest_transaction: float | None
    statistics_lag: float | None


class SoundnessDocument(TypedDict):
    """What of relay's migrations is missing; clock_skew is None where the clocks agree.

    It is by how many seconds the database's clock is ahead of this machine's.
    """

    missing_migrations: list[str]
    clock_skew: float | None


class ReadinessDocument(TypedDict):
    """Whether this process can serve: the database answers and fits."""

    status: Literal["ok", "unavailable"]
    reasons: list[str]
