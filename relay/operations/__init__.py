"""Every act that a person or client may do, for all surfaces alike.

Each checks the permission, then the state, and leaves a row in relay_audit in the
transaction of the act; then the engine does it.
"""

from relay.engine.acts import ActReport
from relay.operations.actor import PERMISSIONS, Actor, Source
from relay.operations.bulk import (
    Matched,
    cancel_bulk,
    count_bulk,
    count_purge,
    purge_queue,
    start_bulk,
)
from relay.operations.filters import QUALIFIERS, from_parameters, parse
from relay.operations.job_filter import FilterError, JobFilter, exactly, quoted
from relay.operations.jobs import (
    AT_ONCE,
    EditOptions,
    JobCall,
    cancel_job,
    cancel_jobs,
    delete_job,
    delete_jobs,
    edit_job,
    enqueue_job,
    enqueue_jobs,
    replay_job,
    replay_jobs,
    retry_job,
    retry_jobs,
    run_job_now,
    run_jobs_now,
)
from relay.operations.marks import LONGEST_LABEL, mark
from relay.operations.queues import (
    order_queue,
    pause_queue,
    resume_queue,
    weigh_queue,
)
from relay.operations.registry import Operation, all_operations
from relay.operations.schedules import (
    create_schedule,
    delete_schedule,
    edit_schedule,
    may_have_run,
    pause_schedules,
    resume_schedules,
    run_schedule,
)
from relay.operations.tokens import (
    SCOPES,
    Caller,
    NewToken,
    caller_of_token,
    create_token,
    revoke_token,
)
from relay.operations.workers import (
    delete_worker,
    quiet_worker,
    resume_worker,
    stop_worker,
)

__all__ = [
    "AT_ONCE",
    "LONGEST_LABEL",
    "PERMISSIONS",
    "QUALIFIERS",
    "SCOPES",
    "ActReport",
    "Actor",
    "Caller",
    "EditOptions",
    "FilterError",
    "JobCall",
    "JobFilter",
    "Matched",
    "NewToken",
    "Operation",
    "Source",
    "all_operations",
    "caller_of_token",
    "cancel_bulk",
    "cancel_job",
    "cancel_jobs",
    "count_bulk",
    "count_purge",
    "create_schedule",
    "create_token",
    "delete_job",
    "delete_jobs",
    "delete_schedule",
    "delete_worker",
    "edit_job",
    "edit_schedule",
    "enqueue_job",
    "enqueue_jobs",
    "exactly",
    "from_parameters",
    "mark",
    "may_have_run",
    "order_queue",
    "parse",
    "pause_queue",
    "pause_schedules",
    "purge_queue",
    "quiet_worker",
    "quoted",
    "replay_job",
    "replay_jobs",
    "resume_queue",
    "resume_schedules",
    "resume_worker",
    "retry_job",
    "retry_jobs",
    "revoke_token",
    "run_job_now",
    "run_jobs_now",
    "run_schedule",
    "start_bulk",
    "stop_worker",
    "weigh_queue",
]
