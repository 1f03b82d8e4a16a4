"""Rows only: every statement that changes a job is in relay.engine."""

from relay.models.access import Audit, BulkOperation, BulkState
from relay.models.api import ApiToken, IdempotentRequest
from relay.models.job import (
    FINAL_STATES,
    LIVE_STATES,
    Attempt,
    History,
    Job,
    JobState,
    Output,
    Step,
)
from relay.models.queue import Queue, QueuePolicy
from relay.models.schedule import (
    CatchUp,
    Occurrence,
    OccurrenceState,
    Overlap,
    Schedule,
    ScheduleSource,
)
from relay.models.stat import Stat
from relay.models.worker import Worker, WorkerKind, WorkerState

__all__ = [
    "FINAL_STATES",
    "LIVE_STATES",
    "ApiToken",
    "Attempt",
    "Audit",
    "BulkOperation",
    "BulkState",
    "CatchUp",
    "History",
    "IdempotentRequest",
    "Job",
    "JobState",
    "Occurrence",
    "OccurrenceState",
    "Output",
    "Overlap",
    "Queue",
    "QueuePolicy",
    "Schedule",
    "ScheduleSource",
    "Stat",
    "Step",
    "Worker",
    "WorkerKind",
    "WorkerState",
]
