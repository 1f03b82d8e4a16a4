"""The rows of what has happened, by the minute and by the hour: for charts."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from relay.models.fields import PlainArrayField

__all__ = ["Stat"]


class Stat(models.Model):
    """What became of one task's jobs in one queue within a minute, or an hour.

    Workers add to it as they go; nothing else is kept when the jobs are pruned.
    """

    id = models.BigAutoField(primary_key=True)
    # Its first instant, and how long it is: 60 or 3,600 seconds.
    at = models.DateTimeField()
    run_seconds = models.FloatField(db_default=0.0)
    wait_seconds = models.FloatField(db_default=0.0)
    count = models.BigIntegerField(db_default=0)
    seconds = models.SmallIntegerField()
    queue = models.TextField()
    task = models.TextField()
    # completed, failed, cancelled, retried or snoozed.
    outcome = models.TextField()
    # Counts by relay.buckets.STAT_BOUNDS, of attempts that had started.
    run_buckets = PlainArrayField(models.BigIntegerField())
    wait_buckets = PlainArrayField(models.BigIntegerField())

    class Meta:
        db_table = "relay_stat"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                name="relay_stat_place_idx",
                fields=["seconds", "at", "queue", "task", "outcome"],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.queue} {self.task} {self.outcome} at {self.at.isoformat()}"
