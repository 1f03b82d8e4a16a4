"""The rows of what people and clients did: who, what, from where, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from django.db import models
from django.db.models.functions import Now

__all__ = ["Audit"]

if TYPE_CHECKING:
    _QuerySet = models.QuerySet["Audit"]
else:
    _QuerySet = models.QuerySet

_APPEND_ONLY = (
    "rows of relay_audit are only added: what was done stays on record; delete old "
    "ones by SQL, under a role that may"
)


class AppendOnly(_QuerySet):
    """Reads and adds; changes nothing."""

    def update(self, **values: Any) -> NoReturn:
        raise TypeError(_APPEND_ONLY)

    def delete(self) -> NoReturn:
        raise TypeError(_APPEND_ONLY)


class Audit(models.Model):
    """One act on one thing, written in the transaction of the act. Never changed."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    # The operation's name in relay.operations, such as cancel_jobs.
    operation = models.TextField()
    # What it was done to: job, queue, worker, schedule or bulk; and its id or name.
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
        verbose_name_plural = "audit"
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
