"""Workers in the admin: who is alive, and until when that is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString

from relay import operations
from relay.admin.lists import RelayAdmin, StateFilter, actor_of, showing
from relay.exceptions import Conflict, NotFound
from relay.models import Worker, WorkerState
from relay.queries.reading import pretty
from relay.queries.workers import served

__all__ = ["WorkerAdminMixin"]

MOST_AT_ONCE: Final = 100


class WorkerStateFilter(StateFilter):
    """By a worker's state."""

    states = WorkerState


class WorkerAdminMixin(RelayAdmin):
    """One child process a line, the newest first."""

    view_permission = "view_worker"
    buttons = {  # noqa: RUF012 - never written
        "quiet": "Quiet",
        "resume": "Claim again",
        "shut_down": "Shut down",
        "forget": "Delete",
    }
    large_columns = ("stats",)
    page_annotations = {"shown_stats": pretty("stats")}  # noqa: RUF012 - never written
    filter_parameters = ("state",)

    list_display = (
        "name",
        "state",
        "queue_names",
        "concurrency",
        "started_at",
        "heartbeat_at",
        "lease_expires_at",
        "version",
    )
    list_filter = (WorkerStateFilter,)
    actions = ("quiet", "resume", "shut_down", "forget")
    fields = (
        "id",
        "name",
        "state",
        "kind",
        "host",
        "pid",
        "supervisor",
        "queue_names",
        "concurrency",
        "version",
        "started_at",
        "heartbeat_at",
        "lease_expires_at",
        "statistics",
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    def is_possible(self, action: str, row: Worker) -> bool:
        if row.state in (WorkerState.STOPPED, WorkerState.LOST):
            return action == "forget"
        is_quiet = row.state == WorkerState.QUIET
        possible = {"quiet": not is_quiet, "resume": is_quiet, "forget": False}
        return possible.get(action, True)

    @admin.display(description="queues")
    def queue_names(self, worker: Worker) -> str:
        return ", ".join(served(worker.queues))

    @admin.display(description="statistics")
    def statistics(self, worker: Any) -> SafeString | str:
        return showing(worker.shown_stats)

    # --- actions ---------------------------------------------------------------------

    def has_manage_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("manage_worker")

    @admin.action(
        description="Quiet selected workers (claim nothing more)",
        permissions=["manage"],
    )
    def quiet(self, request: HttpRequest, queryset: models.QuerySet[Worker]) -> None:
        self._ask(request, queryset, operations.quiet_worker, "to claim nothing more")

    @admin.action(
        description="Let selected workers claim again", permissions=["manage"]
    )
    def resume(self, request: HttpRequest, queryset: models.QuerySet[Worker]) -> None:
        self._ask(request, queryset, operations.resume_worker, "to claim again")

    @admin.action(
        description="Shut down selected workers (running jobs have their grace)",
        permissions=["manage"],
    )
    def shut_down(
        self, request: HttpRequest, queryset: models.QuerySet[Worker]
    ) -> None:
        self._ask(request, queryset, operations.stop_worker, "to end")

    @admin.action(
        description="Delete selected workers that have stopped or are lost",
        permissions=["manage"],
    )
    def forget(
        self, request: HttpRequest, queryset: models.QuerySet[Worker]
    ) -> HttpResponse | None:
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if ids is None:
            return None
        rows = Worker.objects.using(self.alias).filter(pk__in=ids)
        deleted: list[Worker] = []
        for worker in list(rows.only("id", "name").order_by("id")):
            try:
                operations.delete_worker(actor_of(request), worker.pk)
            except (Conflict, NotFound) as error:
                self.message_user(request, f"{error}.", messages.WARNING)
            else:
                deleted.append(worker)
        self.log_acts(request, deleted, "Worker deleted.", flag=DELETION)
        self.message_user(request, f"{len(deleted):,} deleted.", messages.SUCCESS)
        # Its own page is gone with it.
        return HttpResponseRedirect(self.url_of("changelist")) if deleted else None

    def _ask(
        self,
        request: HttpRequest,
        queryset: models.QuerySet[Worker],
        act: Callable[[operations.Actor, UUID], list[UUID]],
        what: str,
    ) -> None:
        ids = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        asked: set[UUID] = set()
        for worker_id in ids or ():
            if worker_id in asked:
                continue  # with another of its process
            try:
                asked.update(act(actor_of(request), worker_id))
            except (Conflict, NotFound) as error:
                self.message_user(request, f"{error}.", messages.WARNING)
        if asked:
            rows = Worker.objects.using(self.alias).filter(pk__in=asked)
            self.log_acts(request, list(rows.only("id", "name")), f"Asked {what}.")
            self.message_user(
                request,
                f"{len(asked):,} asked {what}: all children of their processes.",
                messages.SUCCESS,
            )
