"""The rows of queues: what an operator may set apart from the code."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

__all__ = ["Queue", "QueuePolicy"]


class QueuePolicy(models.TextChoices):
    """How the jobs of a queue are ordered."""

    PRIORITY = "priority"
    FIFO = "fifo"


class Queue(models.Model):
    """One queue. Workers make the rows; an enqueue never does."""

    name = models.TextField(primary_key=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)
    policy = models.TextField(
        choices=QueuePolicy.choices, db_default=QueuePolicy.PRIORITY
    )
    weight = models.IntegerField(db_default=1)
    max_running = models.IntegerField(null=True, blank=True)
    key_limit = models.IntegerField(null=True, blank=True)

    class Meta:
        db_table = "relay_queue"
        permissions = (("manage_queue", "Can pause, resume, order and purge queues"),)
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                name="relay_queue_paused_idx",
                fields=["name"],
                condition=models.Q(paused_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name
