"""What each address of the API asks for, written by hand.

A new address stands here before it is tried: what it declares is no proof of what
it should ask for. Source: docs/reference/rest.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["NEEDED"]

_BY_PERMISSION: Final[Mapping[str | None, str]] = {
    "view_job": """
        GET jobs
        GET jobs/count
        GET jobs/states
        GET jobs/{job_id}
        GET jobs/{job_id}/attempts
        GET jobs/{job_id}/history
        GET jobs/{job_id}/logs
        GET jobs/{job_id}/why
        GET failures
        GET dlq
        GET tasks
        GET tasks/{name}
        GET stream
    """,
    "enqueue_job": """
        POST jobs
        POST jobs/batch
    """,
    "bulk_job": """
        POST jobs/bulk
        POST bulk/{bulk_id}/cancel
        POST failures/{group}/replay
        POST failures/{group}/retry
    """,
    "edit_job": """
        PATCH jobs/{job_id}
    """,
    "delete_job": """
        DELETE jobs/{job_id}
    """,
    "cancel_job": """
        POST jobs/{job_id}/cancel
    """,
    "retry_job": """
        POST jobs/{job_id}/replay
        POST jobs/{job_id}/retry
        POST jobs/{job_id}/run-now
    """,
    "view_bulkoperation": """
        GET bulk
        GET bulk/{bulk_id}
    """,
    "view_queue": """
        GET queues
        GET queues/{queue}
    """,
    "manage_queue": """
        PATCH queues/{queue}
        POST queues/{queue}/pause
        POST queues/{queue}/purge
        POST queues/{queue}/resume
    """,
    "view_worker": """
        GET workers
        GET workers/{worker_id}
    """,
    "manage_worker": """
        DELETE workers/{worker_id}
        POST workers/{worker_id}/quiet
        POST workers/{worker_id}/resume
        POST workers/{worker_id}/shutdown
    """,
    "view_schedule": """
        GET schedules
        POST schedules/preview
        GET schedules/{name}
        GET schedules/{name}/next
    """,
    "manage_schedule": """
        POST schedules
        PATCH schedules/{name}
        DELETE schedules/{name}
        POST schedules/{name}/pause
        POST schedules/{name}/resume
    """,
    "run_schedule": """
        POST schedules/{name}/trigger
    """,
    "view_apitoken": """
        GET tokens
        GET tokens/{token_id}
    """,
    "manage_token": """
        POST tokens
        POST tokens/{token_id}/revoke
    """,
    "view_metrics": """
        GET stats
        GET stats/series
        GET stats/totals
        GET marks
        GET system
    """,
    "add_audit": """
        POST marks
    """,
    "view_audit": """
        GET audit
    """,
    None: """
        GET whoami
        GET version
        GET openapi.json
        GET openapi.yaml
        GET docs
    """,
}

# By method and path.
NEEDED: Final[Mapping[tuple[str, str], str | None]] = {
    (method, f"/v1/{path}"): permission
    for permission, lines in _BY_PERMISSION.items()
    for method, path in (line.split() for line in lines.strip().splitlines())
}
