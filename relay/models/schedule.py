"""The rows of schedules and of the instants at which they were due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7

__all__ = [
    "CatchUp",
    "Occurrence",
    "OccurrenceState",
    "Schedule",
    "ScheduleSource",
]


class CatchUp(models.TextChoices):
    """What happens with instants that passed while no scheduler ran."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class ScheduleSource(models.TextChoices):
    """Who owns a schedule's definition: the code that declares it, or its row."""

    CODE = "code"
    DATABASE = "database"


_DEFINITION = {
    "args",
    "catch_up",
    "catch_up_window_ms",
    "cron",
    "priority",
    "queue",
    "seconds",
    "task",
    "timezone",
}


class Schedule(models.Model):
    """One schedule: an expression in a zone, and the job it enqueues."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.TextField(unique=True)
    task = models.TextField()
    args = models.JSONField(default=dict, blank=True)
    queue = models.TextField(null=True, blank=True)
    priority = models.SmallIntegerField(null=True, blank=True)
    cron = models.TextField()
    # Six fields, the second first, instead of five.
    seconds = models.BooleanField(default=False, db_default=False)
    timezone = models.TextField(default="UTC", db_default="UTC")
    catch_up = models.TextField(
        choices=CatchUp.choices, default=CatchUp.LATEST, db_default=CatchUp.LATEST
    )
    catch_up_window_ms = models.BigIntegerField(
        default=86_400_000, db_default=86_400_000
    )
    enabled = models.BooleanField(default=True, db_default=True)
    source = models.TextField(
        choices=ScheduleSource.choices,
        default=ScheduleSource.DATABASE,
        db_default=ScheduleSource.DATABASE,
        editable=False,
    )
    # When a sync disabled it because the code no longer declares it.
    retired_at = models.DateTimeField(null=True, editable=False)
    # The definition that next_due_at was computed from: an edit, however it was
    # made, shows as a difference and plans the schedule anew from then on.
    planned = models.TextField(null=True, editable=False)
    next_due_at = models.DateTimeField(null=True, editable=False)
    last_due_at = models.DateTimeField(null=True, editable=False)
    last_error = models.TextField(null=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    # Set by relay.scheduler, which stands above this layer: the reason by field.
    find_errors: ClassVar[Callable[[Schedule], Mapping[str, str]]] = staticmethod(
        lambda schedule: {}
    )

    class Meta:
        db_table = "relay_schedule"

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the row if its definition can be kept.

        Raises:
            ValidationError: it cannot; not raised where update_fields names nothing
                of the definition, so that a broken schedule can still be disabled.
        """
        update_fields = kwargs.get("update_fields")
        if update_fields is None or _DEFINITION & set(update_fields):
            self.clean()
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Refuse a definition that cannot be kept, with the reason by field."""
        super().clean()
        errors = type(self).find_errors(self)
        if errors:
            raise ValidationError(dict(errors))


class OccurrenceState(models.TextChoices):
    """What became of a due instant."""

    FIRED = "fired"
    MISSED = "missed"


class Occurrence(models.Model):
    """One due instant of a schedule; a missed row may stand for a run of them."""

    id = models.BigAutoField(primary_key=True)
    # Its index is relay_occurrence_once.
    schedule = models.ForeignKey(
        Schedule,
        on_delete=models.CASCADE,
        related_name="occurrences",
        db_index=False,
    )
    due_at = models.DateTimeField()
    state = models.TextField(
        choices=OccurrenceState.choices, db_default=OccurrenceState.FIRED
    )
    job = models.ForeignKey(
        "relay.Job",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="+",
    )
    # For a missed row: how many instants it stands for, and the last of them.
    count = models.IntegerField(db_default=1)
    until_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_occurrence"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                name="relay_occurrence_once", fields=["schedule", "due_at"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.due_at}"
