"""Bulk operations in the admin: how far they are, and a way to end them."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest
from django.utils.safestring import SafeString

from relay import operations
from relay.admin.lists import RelayAdmin, actor_of
from relay.exceptions import Conflict, NotFound
from relay.models import BulkOperation
from relay.queries.bulk import get_bulk, told_filter

__all__ = ["BulkOperationAdminMixin"]

MOST_AT_ONCE: Final = 100


class BulkOperationAdminMixin(RelayAdmin):
    """One operation a line, the newest first."""

    view_permission = "view_bulkoperation"
    buttons = {"cancel": "Cancel"}  # noqa: RUF012 - never written
    list_display = (
        "id",
        "action",
        "which",
        "state",
        "matched",
        "done",
        "failed",
        "actor",
        "created_at",
    )
    actions = ("cancel",)
    fields = (
        "id",
        "action",
        "which",
        "state",
        "expected",
        "matched",
        "done",
        "asked",
        "left",
        "failed",
        "error",
        "actor",
        "source",
        "reason",
        "job",
        "why",
        "created_at",
        "started_at",
        "cancel_requested_at",
        "finished_at",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[BulkOperation]:
        rows: models.QuerySet[BulkOperation] = super().get_queryset(request)
        is_shown = actor_of(request).may("view_payload")
        return rows.annotate(shows_arguments=models.Value(is_shown))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        bulk = super().get_object(request, object_id, from_field)
        actor = actor_of(request)
        if bulk is not None and actor.may("view_bulkoperation"):
            bulk.cause = get_bulk(actor, bulk.pk)["why"]
        return bulk

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    def is_possible(self, action: str, row: BulkOperation) -> bool:
        return row.finished_at is None

    @admin.display(description="filter")
    def which(self, bulk: Any) -> str:
        return told_filter(bulk.filter, shown=bulk.shows_arguments)

    @admin.display(description="skipped")
    def left(self, bulk: Any) -> str | None:
        listed = (f"{count:,} {reason}" for reason, count in bulk.skipped.items())
        return ", ".join(listed) or None

    @admin.display(description="done by")
    def job(self, bulk: BulkOperation) -> SafeString | str:
        return self.link("job", bulk.job_id)

    @admin.display(description="why it does not run")
    def why(self, bulk: Any) -> str | None:
        return bulk.cause and f"{bulk.cause['summary']} {bulk.cause['remedy']}"

    def has_bulk_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("bulk_job")

    @admin.action(description="Cancel selected operations", permissions=["bulk"])
    def cancel(
        self, request: HttpRequest, queryset: models.QuerySet[BulkOperation]
    ) -> None:
        cancelled = []
        for bulk_id in self.selected_ids(request, queryset, limit=MOST_AT_ONCE) or ():
            try:
                operations.cancel_bulk(actor_of(request), bulk_id)
            except (Conflict, NotFound) as error:
                self.message_user(request, f"{error}.", messages.WARNING)
            else:
                cancelled.append(bulk_id)
        if cancelled:
            rows = BulkOperation.objects.using(self.alias).filter(pk__in=cancelled)
            self.log_acts(request, list(rows.only("id", "action")), "Cancel.")
            self.message_user(
                request,
                f"{len(cancelled):,} go no further than their chunk.",
                messages.SUCCESS,
            )
