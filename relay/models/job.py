"""The rows of jobs, of attempts that did not simply succeed, and of history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7
from relay.models.fields import PlainArrayField
from relay.models.indexes import GinIndex

__all__ = [
    "FINAL_STATES",
    "LIVE_STATES",
    "Attempt",
    "History",
    "Job",
    "JobState",
    "Output",
    "Step",
]


class JobState(models.TextChoices):
    """Where a job stands. Stored as text; SQL always writes them as literals."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_STATES = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
LIVE_STATES = tuple(state for state in JobState if state not in FINAL_STATES)

_LITERAL_FINAL = ["completed", "failed", "cancelled"]

_COUNTER = (0, 2_000_000_000)

# What Python's datetime can hold in every zone; keeps 'infinity' out as well.
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 30, tzinfo=UTC)


class NextReadySeq(models.Func):
    """The next place in the order in which jobs become ready."""

    function = "nextval"
    template = "%(function)s('relay_ready_seq'::regclass)"
    output_field: ClassVar[models.Field[int, int]] = models.BigIntegerField()


class Job(models.Model):
    """One job. Only the engine writes here; admin, API and tests read.

    The columns stand in storage order: fixed widths first, then what changes,
    then what never changes. Source: docs/explanation/tables.md.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    created_at = models.DateTimeField(db_default=Now())
    run_at = models.DateTimeField(db_default=Now())
    ready_seq = models.BigIntegerField(db_default=NextReadySeq())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    unique_until = models.DateTimeField(null=True)
    occurrence_at = models.DateTimeField(null=True)
    schedule_id = models.UUIDField(null=True)
    worker_id = models.UUIDField(null=True)
    workflow_id = models.UUIDField(null=True)
    replay_of = models.UUIDField(null=True)
    attempt = models.IntegerField(db_default=0)
    timeout_ms = models.IntegerField(null=True)
    failures = models.IntegerField(db_default=0)
    crashes = models.IntegerField(db_default=0)
    losses = models.IntegerField(db_default=0)
    max_retries = models.IntegerField(db_default=25)
    priority = models.SmallIntegerField(db_default=0)
    has_dependents = models.BooleanField(db_default=False)
    state = models.TextField(choices=JobState.choices, db_default=JobState.QUEUED)
    task = models.TextField()
    queue = models.TextField(db_default="default")
    unique_scope = models.TextField(null=True)
    concurrency_key = models.TextField(null=True)
    unique_key = models.BinaryField(null=True)
    error_class = models.TextField(null=True)
    error_message = models.TextField(null=True)
    progress = models.JSONField(null=True)
    result = models.JSONField(null=True)
    tags = PlainArrayField(models.TextField(), null=True)
    meta = models.JSONField(null=True)
    args = models.JSONField(default=dict)

    class Meta:
        db_table = "relay_job"
        # Besides Django's own; each stands for acts of relay.operations.
        permissions = (
            ("view_payload", "Can see arguments, results and progress"),
            ("enqueue_job", "Can enqueue jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("retry_job", "Can retry, replay and run jobs now"),
            ("edit_job", "Can edit waiting jobs"),
            ("bulk_job", "Can act on all jobs that match a filter"),
            ("view_metrics", "Can see metrics"),
        )
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                name="relay_job_state_known",
                condition=models.Q(state__in=JobState.values),
            ),
            models.CheckConstraint(
                name="relay_job_running_has_worker",
                condition=~models.Q(state="running", worker_id__isnull=True),
            ),
            models.CheckConstraint(
                name="relay_job_priority_range",
                condition=models.Q(priority__range=(-100, 100)),
            ),
            # Engine statements add to these: at the end of a column a single row
            # would fail the whole claim.
            models.CheckConstraint(
                name="relay_job_counters_range",
                condition=models.Q(
                    attempt__range=_COUNTER,
                    failures__range=_COUNTER,
                    crashes__range=_COUNTER,
                    losses__range=_COUNTER,
                    ready_seq__gte=0,
                ),
            ),
            models.CheckConstraint(
                name="relay_job_times_finite",
                condition=models.Q(run_at__range=(_FIRST, _LAST))
                & (
                    models.Q(deadline_at__isnull=True)
                    | models.Q(deadline_at__range=(_FIRST, _LAST))
                ),
            ),
            models.UniqueConstraint(
                name="relay_job_unique_idx",
                fields=["unique_key"],
                condition=models.Q(unique_key__isnull=False),
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                name="relay_job_ready_idx",
                fields=["queue", "-priority", "ready_seq"],
                condition=models.Q(state="queued", concurrency_key__isnull=True),
            ),
            models.Index(
                name="relay_job_due_idx",
                fields=["run_at"],
                condition=models.Q(state__in=["scheduled", "retrying"]),
            ),
            models.Index(
                name="relay_job_blocked_idx",
                fields=["id"],
                condition=models.Q(state="blocked"),
            ),
            # Few among many scheduled ones: lists and counts find them by it.
            models.Index(
                name="relay_job_retrying_idx",
                fields=["run_at"],
                condition=models.Q(state="retrying"),
            ),
            models.Index(
                name="relay_job_held_idx",
                fields=["queue", "worker_id"],
                condition=models.Q(state="running"),
            ),
            models.Index(
                name="relay_job_final_idx",
                fields=["finished_at", "id"],
                condition=models.Q(state__in=_LITERAL_FINAL),
            ),
            models.Index(
                name="relay_job_failed_idx",
                # The last two are looked at without their rows: few of many match.
                fields=["state", "id", "queue", "task"],
                condition=models.Q(state__in=["failed", "cancelled"]),
            ),
            models.Index(
                name="relay_job_retention_idx",
                fields=["expires_at"],
                condition=models.Q(expires_at__isnull=False),
            ),
            models.Index(
                name="relay_job_replay_idx",
                fields=["replay_of"],
                condition=models.Q(replay_of__isnull=False),
            ),
            GinIndex(
                name="relay_job_tags_idx",
                fields=["tags"],
                condition=models.Q(tags__isnull=False),
            ),
            # Running ones are past caring: they would stay at its front.
            models.Index(
                name="relay_job_deadline_idx",
                fields=["deadline_at"],
                condition=models.Q(
                    deadline_at__isnull=False,
                    state__in=["blocked", "scheduled", "queued", "retrying"],
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.id}"


class Attempt(models.Model):
    """One attempt that did not simply succeed; a first-try success has none."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="attempts",
    )
    attempt = models.IntegerField()
    worker_id = models.UUIDField(null=True)
    outcome = models.TextField()
    error_class = models.TextField(null=True)
    error_message = models.TextField(null=True)
    traceback = models.TextField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_attempt"

    def __str__(self) -> str:
        return f"attempt {self.attempt} of {self.job_id}: {self.outcome}"


class History(models.Model):
    """One exceptional transition, with who asked for it.

    A job's ordinary life is read off its own times and has no rows here.
    """

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="history",
    )
    at = models.DateTimeField(db_default=Now())
    event = models.TextField()
    attempt = models.IntegerField(null=True)
    actor = models.TextField(null=True)
    detail = models.JSONField(null=True)

    class Meta:
        db_table = "relay_history"
        verbose_name_plural = "history"

    def __str__(self) -> str:
        return f"{self.event} {self.job_id or ''}".strip()


class Output(models.Model):
    """What one attempt logged and printed, where that is kept."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,  # the unique constraint's serves it
        related_name="outputs",
    )
    attempt = models.IntegerField()
    at = models.DateTimeField(db_default=Now())
    text = models.TextField()

    class Meta:
        db_table = "relay_output"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                name="relay_output_attempt_idx", fields=["job", "attempt"]
            ),
        ]

    def __str__(self) -> str:
        return f"log of attempt {self.attempt} of {self.job_id}"


class Step(models.Model):
    """A step of a job that is done, with what its function returned."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,  # the unique constraint's serves it
        related_name="steps",
    )
    attempt = models.IntegerField()
    done_at = models.DateTimeField(db_default=Now())
    name = models.TextField()
    value = models.JSONField(null=True)

    class Meta:
        db_table = "relay_step"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(name="relay_step_name_idx", fields=["job", "name"]),
        ]

    def __str__(self) -> str:
        return f"step {self.name} of {self.job_id}"
