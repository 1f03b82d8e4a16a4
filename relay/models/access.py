"""The rows of what people and clients did: the record, and acts over many jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7

__all__ = ["Audit", "BulkOperation", "BulkState"]

if TYPE_CHECKING:
    _QuerySet = models.QuerySet["Audit"]
else:
    _QuerySet = models.QuerySet

_APPEND_ONLY = (
    "rows of relay_audit are only added: what was done stays on record, for as long as "
    "RELAY['RETENTION_AUDIT'] says"
)


class AppendOnly(_QuerySet):
    """Reads and adds; changes nothing."""

    def update(self, **values: Any) -> NoReturn:
        raise TypeError(_APPEND_ONLY)

    def delete(self) -> NoReturn:
        raise TypeError(_APPEND_ONLY)


class Audit(models.Model):
    """One act on one thing, written in the transaction of the act. Never changed.

    Workers delete it once it is as old as RELAY["RETENTION_AUDIT"] says.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    # The operation's name in relay.operations, such as cancel_jobs.
    operation = models.TextField()
    # What it was done to: job, queue, worker, schedule, bulk, token or mark; its id or
    # name.
    subject = models.TextField()
    target = models.TextField()
    actor = models.TextField()
    # Through which surface: dashboard, admin, api, cli or system.
    source = models.TextField()
    reason = models.TextField(null=True)
    request_id = models.TextField(null=True)
    address = models.TextField(null=True)
    # What it changed, where that is not plain: before and after, never arguments.
    detail = models.JSONField(null=True)

    objects: ClassVar[models.Manager[Audit]] = AppendOnly.as_manager()

    class Meta:
        db_table = "relay_audit"
        verbose_name = "audit record"
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                name="relay_audit_target_idx", fields=["subject", "target", "id"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.target} by {self.actor}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add the row.

        Raises:
            TypeError: it is there already.
        """
        if not self._state.adding:
            raise TypeError(_APPEND_ONLY)
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse.

        Raises:
            TypeError: always.
        """
        raise TypeError(_APPEND_ONLY)


class BulkState(models.TextChoices):
    """Where a bulk operation stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class BulkOperation(models.Model):
    """One act over all jobs that match a filter, and how far it has come.

    Each chunk of jobs is changed in one transaction with what stands here of it: who
    goes on after a crash does no job twice and leaves none out.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # What is done to each: cancel, retry, replay, run_now or delete.
    action = models.TextField()
    # As text, with instants in place of ages: it means the same at any later time.
    filter = models.TextField()
    # How many the asker was told of; more than a tenth above it ends the operation.
    expected = models.IntegerField(null=True)
    state = models.TextField(choices=BulkState.choices, db_default=BulkState.QUEUED)
    matched = models.BigIntegerField(db_default=0)
    done = models.BigIntegerField(db_default=0)
    # Running jobs whose workers were asked to stop them.
    asked = models.BigIntegerField(db_default=0)
    # How many were left, by reason.
    skipped = models.JSONField(default=dict)
    failed = models.BigIntegerField(db_default=0)
    # What is still to be gone through: states, and where in the first of them.
    position = models.JSONField(default=dict)
    error = models.TextField(null=True)
    actor = models.TextField()
    source = models.TextField()
    reason = models.TextField(null=True)
    request_id = models.TextField(null=True)
    # Of a replay: which tasks the asker may have run, and where; null for all.
    rights = models.JSONField(null=True)
    # The job that does it.
    job_id = models.UUIDField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "relay_operation"

    def __str__(self) -> str:
        return f"{self.action} {self.id}"
