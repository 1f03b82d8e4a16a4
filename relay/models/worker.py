"""The rows of workers: who is alive, and until when that is believed."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7
from relay.models.fields import PlainArrayField

__all__ = ["Worker", "WorkerKind", "WorkerState"]


class WorkerState(models.TextChoices):
    """Where a worker stands; a lost one never comes back under its id."""

    RUNNING = "running"
    QUIET = "quiet"
    DRAINING = "draining"
    STOPPED = "stopped"
    LOST = "lost"


class WorkerKind(models.TextChoices):
    """What a worker is made of."""

    PROCESS = "process"
    EMBEDDED = "embedded"
    HTTP = "http"


class Worker(models.Model):
    """One child process that runs jobs. The id is new at each start."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.TextField()
    supervisor = models.UUIDField(null=True)
    host = models.TextField()
    pid = models.IntegerField()
    kind = models.TextField(choices=WorkerKind.choices, db_default=WorkerKind.PROCESS)
    queues = PlainArrayField(models.TextField())
    concurrency = models.IntegerField()
    version = models.TextField()
    state = models.TextField(
        choices=WorkerState.choices, db_default=WorkerState.RUNNING
    )
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    lease_expires_at = models.DateTimeField()
    stats = models.JSONField(null=True)
    # What an operator has asked for and the worker has not done yet: quiet, resume or
    # stop; and when.
    asked = models.TextField(null=True)
    asked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "relay_worker"
        permissions = (("manage_worker", "Can quiet and shut down workers"),)

    def __str__(self) -> str:
        return self.name
