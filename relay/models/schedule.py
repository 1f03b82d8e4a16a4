"""The rows of schedules and of the instants at which they were due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7
from relay.models.fields import PlainArrayField

__all__ = [
    "DEFINITION",
    "CatchUp",
    "Occurrence",
    "OccurrenceState",
    "Overlap",
    "Schedule",
    "ScheduleSource",
]


class CatchUp(models.TextChoices):
    """What happens with instants that passed while no scheduler ran."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Overlap(models.TextChoices):
    """What happens with an occurrence while an earlier run has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue", "Queue one"
    CANCEL = "cancel", "Cancel previous"


class ScheduleSource(models.TextChoices):
    """Who owns a schedule's definition: the code that declares it, or its row."""

    CODE = "code"
    DATABASE = "database"


# What save() checks as a whole.
DEFINITION: Final = {
    "args",
    "catch_up",
    "catch_up_window_ms",
    "cron",
    "ends_at",
    "every_ms",
    "excluded",
    "once_at",
    "overlap",
    "priority",
    "queue",
    "seconds",
    "spread_ms",
    "starts_at",
    "success_within_ms",
    "task",
    "timezone",
}


class Schedule(models.Model):
    """One schedule: when it is due, and the job it enqueues."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.TextField(unique=True)
    task = models.TextField()
    args = models.JSONField(default=dict, blank=True)
    queue = models.TextField(null=True, blank=True)
    priority = models.SmallIntegerField(null=True, blank=True)
    # One of three says when: an expression, an interval, or an instant (once_at).
    cron = models.TextField(default="", db_default="", blank=True)
    # Six fields, the second first, instead of five.
    seconds = models.BooleanField(default=False, db_default=False)
    timezone = models.TextField(default="UTC", db_default="UTC")
    every_ms = models.BigIntegerField(null=True, blank=True)
    once_at = models.DateTimeField(null=True, blank=True)
    # Nothing is due before or after; both included. Intervals count from starts_at.
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    # Dates and expressions that are left out, one a line.
    excluded = models.TextField(null=True, blank=True)
    # It runs up to so long after each planned time: always the same time.
    spread_ms = models.BigIntegerField(null=True, blank=True)
    catch_up = models.TextField(
        choices=CatchUp.choices, default=CatchUp.LATEST, db_default=CatchUp.LATEST
    )
    catch_up_window_ms = models.BigIntegerField(
        default=86_400_000, db_default=86_400_000
    )
    overlap = models.TextField(
        choices=Overlap.choices, default=Overlap.ALLOW, db_default=Overlap.ALLOW
    )
    # Without a success for longer than this it is reported.
    success_within_ms = models.BigIntegerField(null=True, blank=True)
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
    # When a scheduler found that nothing is due any more.
    finished_at = models.DateTimeField(null=True, editable=False)
    last_due_at = models.DateTimeField(null=True, editable=False)
    # The latest planned time whose job has completed, and when that was.
    last_success_due_at = models.DateTimeField(null=True, editable=False)
    last_success_at = models.DateTimeField(null=True, editable=False)
    # Unless runs may overlap: the jobs that may not have ended, and the occurrence
    # that waits for them.
    open_jobs = PlainArrayField(models.UUIDField(), null=True, editable=False)
    waiting_at = models.DateTimeField(null=True, editable=False)
    last_error = models.TextField(null=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    # Set by relay.scheduler, which stands above this layer: the reason by field.
    find_errors: ClassVar[Callable[[Schedule], Mapping[str, str]]] = staticmethod(
        lambda schedule: {}
    )

    class Meta:
        db_table = "relay_schedule"
        permissions = (
            ("manage_schedule", "Can create, edit, pause and delete schedules"),
            ("run_schedule", "Can run schedules now"),
        )

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the row if its definition can be kept.

        Raises:
            ValidationError: it cannot; not raised where update_fields names nothing
                of the definition, so that a broken schedule can still be disabled.
        """
        update_fields = kwargs.get("update_fields")
        if update_fields is None or DEFINITION & set(update_fields):
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
    SKIPPED = "skipped"
    WAITING = "waiting"


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
    # Why it was skipped.
    reason = models.TextField(null=True)
    # The occurrence before it that was run: where the stretch of time begins that this
    # one is about.
    window_start = models.DateTimeField(null=True)
    # The final state of its job, noted before the job is pruned.
    outcome = models.TextField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_occurrence"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                name="relay_occurrence_once", fields=["schedule", "due_at"]
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                name="relay_occurrence_open_idx",
                fields=["schedule", "due_at"],
                condition=models.Q(job__isnull=False, outcome__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.due_at}"
