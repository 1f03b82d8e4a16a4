"""What tests of operations share."""

from __future__ import annotations

import pytest
from django.db import connection

from relay.models import JobState


@pytest.fixture
def counted_jobs(db: None) -> None:
    """Jobs of each state, which the planner knows of: of none it takes any index."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO relay_job "
            "(id, task, queue, args, state, finished_at, worker_id) "
            "SELECT gen_random_uuid(), 'app.task', 'default', '{}', state, "
            "CASE WHEN state = ANY(%s) THEN now() END, "
            "CASE state WHEN 'running' THEN gen_random_uuid() END "
            "FROM unnest(%s::text[]) AS state, generate_series(1, 300)",
            [["completed", "failed", "cancelled"], list(JobState.values)],
        )
        cursor.execute("ANALYZE relay_job")
        cursor.execute("SET LOCAL enable_seqscan = off")
