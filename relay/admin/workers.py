"""Workers in the admin: who is alive, and until when that is believed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from relay.admin.lists import RelayAdmin, StateFilter, pretty, showing
from relay.models import Worker, WorkerState

__all__ = ["WorkerAdmin"]


class WorkerStateFilter(StateFilter):
    """By a worker's state."""

    states = WorkerState


@admin.register(Worker)
class WorkerAdmin(RelayAdmin):
    """One child process a line, the newest first."""

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

    @admin.display(description="queues")
    def queue_names(self, worker: Worker) -> str:
        return ", ".join(worker.queues)

    @admin.display(description="statistics")
    def statistics(self, worker: Any) -> SafeString | str:
        return showing(worker.shown_stats)
