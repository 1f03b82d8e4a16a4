"""What every surface shows and sends: plain dicts that JSON can carry.

Times are RFC 3339 in UTC with Z, durations seconds, ids texts. A payload is "•••" to
who lacks view_payload, and where a list leaves out a large one it is "…".
Source of every field: docs/reference/queries.md.
"""

from relay.queries.documents.acts import (
    AuditDocument,
    AuditPage,
    BulkDocument,
    BulkPage,
    TaskDocument,
)
from relay.queries.documents.figures import (
    ActivityDocument,
    CheckDocument,
    DurationsDocument,
    ReadinessDocument,
    SeriesDocument,
    StatsDocument,
    SystemDocument,
    TableDocument,
    TotalsDocument,
    WorkersDocument,
)
from relay.queries.documents.jobs import (
    AttemptDocument,
    Cause,
    CountDocument,
    FailureDocument,
    FailurePage,
    HistoryDocument,
    JobDetail,
    JobDocument,
    JobPage,
    JobPast,
    LogDocument,
    Status,
    StepDocument,
)
from relay.queries.documents.places import (
    FireDocument,
    OccurrenceDocument,
    QueueDocument,
    ScheduleDetail,
    ScheduleDocument,
    SchedulePage,
    WorkerDetail,
    WorkerDocument,
    WorkerPage,
)

__all__ = [
    "ActivityDocument",
    "AttemptDocument",
    "AuditDocument",
    "AuditPage",
    "BulkDocument",
    "BulkPage",
    "Cause",
    "CheckDocument",
    "CountDocument",
    "DurationsDocument",
    "FailureDocument",
    "FailurePage",
    "FireDocument",
    "HistoryDocument",
    "JobDetail",
    "JobDocument",
    "JobPage",
    "JobPast",
    "LogDocument",
    "OccurrenceDocument",
    "QueueDocument",
    "ReadinessDocument",
    "ScheduleDetail",
    "ScheduleDocument",
    "SchedulePage",
    "SeriesDocument",
    "StatsDocument",
    "Status",
    "StepDocument",
    "SystemDocument",
    "TableDocument",
    "TaskDocument",
    "TotalsDocument",
    "WorkerDetail",
    "WorkerDocument",
    "WorkerPage",
    "WorkersDocument",
]
