"""Relay's tables in Django's admin: to look at, and to act on."""

from relay.admin.bulk import BulkOperationAdmin
from relay.admin.jobs import JobAdmin
from relay.admin.occurrences import OccurrenceAdmin
from relay.admin.queues import QueueAdmin
from relay.admin.schedules import ScheduleAdmin
from relay.admin.workers import WorkerAdmin

__all__ = [
    "BulkOperationAdmin",
    "JobAdmin",
    "OccurrenceAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
