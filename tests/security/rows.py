"""One of everything, with a word in it that only some may read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from relay import operations
from relay.models import (
    Attempt,
    Audit,
    History,
    IdempotentRequest,
    Job,
    JobState,
    Occurrence,
    Output,
    Queue,
    Schedule,
    Step,
)
from relay.operations import Actor
from tests.api.factory import make_worker
from tests.operations.factory import make_job

__all__ = ["ROOT", "make_rows"]

ROOT = Actor(name="root", source="cli")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_rows(document: Any) -> dict[str, Any]:
    """Make rows that hold this JSON document; return them by where addresses name them.

    Args:
        document: as an argument, a result, progress, the value of a step.
    """
    args = {"args": [document], "kwargs": {"given": document}}
    worker = make_worker()
    job: Job | None = None
    for state in JobState.values:
        own = {"worker_id": worker.pk} if state == "running" else {}
        job = make_job(
            state,
            task="testproject.tasks.echo",
            args=args,
            result=document,
            progress={"given": document},
            unique_key=state.encode().ljust(16),
            attempt=1,
            **own,
        )
        Step.objects.create(job=job, attempt=1, name="first", value=document)
    assert job is not None
    failed = Job.objects.get(state="failed")
    Attempt.objects.create(job=failed, attempt=1, outcome="fail", traceback="Traceback")
    History.objects.create(job=failed, event="retry", actor="ada")
    Output.objects.create(job=failed, attempt=1, text="a line")
    schedule = Schedule.objects.create(
        name="nightly", task="testproject.tasks.echo", cron="0 3 * * *", args=args
    )
    occurrence = Occurrence.objects.create(
        schedule=schedule, due_at=NOW, job_id=failed.pk
    )
    Queue.objects.create(name="default")
    bulk = operations.start_bulk(ROOT, "retry", "state:failed queue:mail")
    token = operations.create_token(ROOT, "tests", scopes=["read"]).token
    IdempotentRequest.objects.create(
        caller="user 1", key="k", digest=b"x" * 32, answer={"args": args}
    )
    return {
        **{"jobs": failed.pk, "job": failed.pk, "job_id": failed.pk},
        **{"queues": "default", "queue": "default"},
        **{"workers": worker.pk, "worker": worker.pk},
        **{"bulk": bulk.pk, "bulkoperation": bulk.pk},
        **{"schedules": schedule.name, "schedule": schedule.pk},
        **{"occurrence": occurrence.pk, "tasks": "testproject.tasks.echo"},
        **{"audit": Audit.objects.values_list("pk", flat=True)[0]},
        **{"token": token.pk, "tokens": token.pk, "apitoken": token.pk},
    }
