"""The rows of the REST API: tokens, and requests that are not to be done twice."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from relay.ids import uuid7
from relay.models.fields import PlainArrayField

__all__ = ["ApiToken", "IdempotentRequest"]


class ApiToken(models.Model):
    """One token of the API: of its secret only the SHA-256 is kept."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # What people call it, and what the record says of who used it.
    name = models.TextField()
    # The first characters of the secret, by which it is told from others.
    prefix = models.TextField()
    digest = models.BinaryField(unique=True)
    # Of relay.operations.SCOPES.
    scopes = PlainArrayField(models.TextField())
    # The only queues whose jobs it is for; null for all.
    queues = PlainArrayField(models.TextField(), null=True)
    # The only tasks that it may have run: names, and beginnings before a *; null for
    # all that ask for no permission.
    tasks = PlainArrayField(models.TextField(), null=True)
    created_by = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    # Written once a minute at most.
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "relay_token"
        verbose_name = "API token"
        permissions = (("manage_token", "Can create and revoke API tokens"),)

    def __str__(self) -> str:
        return f"{self.name} {self.prefix}"


class IdempotentRequest(models.Model):
    """One request with an Idempotency-Key that was done, and its answer.

    Written in the transaction of what it did, and kept for a day.
    """

    id = models.BigAutoField(primary_key=True)
    # The key is the caller's own: another's is another.
    caller = models.TextField()
    key = models.TextField()
    # SHA-256 of method, path and body.
    digest = models.BinaryField()
    location = models.TextField(null=True)
    answer = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "relay_request"
        default_permissions = ()
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(name="relay_request_once", fields=["caller", "key"])
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(name="relay_request_old_idx", fields=["created_at"])
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.caller}"
