"""What people and clients see of jobs, queues, workers and schedules, on every surface.

Each function takes the Actor who asks, checks what they may see, and returns documents:
dicts that JSON can carry. None changes anything. Every list goes by an index.
Source of every field: docs/reference/queries.md.
"""

from relay.queries.audit import list_audit
from relay.queries.bulk import get_bulk, list_bulk
from relay.queries.failures import get_failure, list_failures
from relay.queries.jobs import (
    INCLUDES,
    count_jobs,
    get_job,
    list_attempts,
    list_history,
    list_jobs,
    list_logs,
    list_steps,
    states,
)
from relay.queries.marks import list_marks
from relay.queries.queues import get_queue, list_queues
from relay.queries.schedules import (
    get_schedule,
    get_upcoming,
    list_occurrences,
    list_schedules,
    next_fires,
    preview,
)
from relay.queries.soundness import get_soundness
from relay.queries.stats import get_activity, get_series, get_stats, get_totals
from relay.queries.system import get_system, health, readiness
from relay.queries.tasks import get_task, list_tasks
from relay.queries.tokens import get_token, list_tokens
from relay.queries.why import CAUSES, why_not_running
from relay.queries.workers import count_workers, get_worker, list_workers

__all__ = [
    "CAUSES",
    "INCLUDES",
    "count_jobs",
    "count_workers",
    "get_activity",
    "get_bulk",
    "get_failure",
    "get_job",
    "get_queue",
    "get_schedule",
    "get_series",
    "get_soundness",
    "get_stats",
    "get_system",
    "get_task",
    "get_token",
    "get_totals",
    "get_upcoming",
    "get_worker",
    "health",
    "list_attempts",
    "list_audit",
    "list_bulk",
    "list_failures",
    "list_history",
    "list_jobs",
    "list_logs",
    "list_marks",
    "list_occurrences",
    "list_queues",
    "list_schedules",
    "list_steps",
    "list_tasks",
    "list_tokens",
    "list_workers",
    "next_fires",
    "preview",
    "readiness",
    "states",
    "why_not_running",
]
