"""Every act that a person or client may do, for all surfaces alike.

Each checks the permission, then the state, and leaves a row in relay_audit in the
transaction of the act; then the engine does it.
"""

from relay.engine.acts import ActReport
from relay.operations.actor import PERMISSIONS, Actor, Source
from relay.operations.jobs import (
    AT_ONCE,
    EditOptions,
    cancel_job,
    cancel_jobs,
    delete_job,
    delete_jobs,
    edit_job,
    enqueue_job,
    replay_job,
    replay_jobs,
    retry_job,
    retry_jobs,
    run_job_now,
    run_jobs_now,
)
from relay.operations.registry import Operation, all_operations

__all__ = [
    "AT_ONCE",
    "PERMISSIONS",
    "ActReport",
    "Actor",
    "EditOptions",
    "Operation",
    "Source",
    "all_operations",
    "cancel_job",
    "cancel_jobs",
    "delete_job",
    "delete_jobs",
    "edit_job",
    "enqueue_job",
    "replay_job",
    "replay_jobs",
    "retry_job",
    "retry_jobs",
    "run_job_now",
    "run_jobs_now",
]
