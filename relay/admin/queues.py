"""Queues in the admin: what waits, what runs, pausing, order and weight."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html

from relay import operations
from relay.admin.act_form import ActForm
from relay.admin.acting import Tool
from relay.admin.job_acts import ALL_THERE
from relay.admin.lists import RelayAdmin, actor_of
from relay.engine.policy import Policy
from relay.engine.weight import LARGEST_WEIGHT
from relay.exceptions import ArgumentError, Conflict
from relay.models import Queue

__all__ = ["QueueAdminMixin"]

# Counted no further, so that a long queue costs no more than a short one.
COUNT_CAP: Final = 1_000
MOST_AT_ONCE: Final = 1_000

# Index: relay_job_ready_idx.
_WAITING: Final = """
(SELECT count(*) FROM (
    SELECT FROM relay_job
    WHERE state = 'queued' AND concurrency_key IS NULL AND queue = relay_queue.name
    LIMIT %s) AS waiting)
"""
# Index: relay_job_held_idx.
_RUNNING: Final = """
(SELECT count(*) FROM (
    SELECT FROM relay_job
    WHERE state = 'running' AND queue = relay_queue.name
    LIMIT %s) AS running)
"""
_IS_PAUSED: Final = """
(relay_queue.paused_at IS NOT NULL
 AND (relay_queue.paused_until IS NULL OR relay_queue.paused_until > clock_timestamp()))
"""


class WeightForm(ActForm):
    """What operations.weigh_queue takes."""

    weight = forms.IntegerField(
        min_value=1,
        max_value=LARGEST_WEIGHT,
        help_text="How often workers that start without -q claim from it first, "
        "compared with the others.",
    )
    reason = forms.CharField(
        required=False, max_length=500, help_text="Why, for the record."
    )


class QueueAdminMixin(RelayAdmin):
    """One queue a line; workers make the rows, what may be changed are actions."""

    view_permission = "view_queue"
    buttons = {  # noqa: RUF012 - never written
        "pause": "Pause",
        "resume": "Resume",
        "order_fifo": "Order by first in, first out",
        "order_by_priority": "Order by priority",
    }
    list_display = (
        "name",
        "policy",
        "weight",
        "is_paused",
        "paused_until",
        "waiting",
        "running",
    )
    actions = ("pause", "resume", "order_fifo", "order_by_priority")
    fields = (
        "name",
        "policy",
        "weight",
        "is_paused",
        "paused_at",
        "paused_until",
        "waiting",
        "running",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Queue]:
        most = [COUNT_CAP + 1]
        rows: models.QuerySet[Queue] = super().get_queryset(request)
        return rows.annotate(
            waiting_count=RawSQL(_WAITING, most),  # noqa: S611 - constants
            running_count=RawSQL(_RUNNING, most),  # noqa: S611 - constants
            paused_now=RawSQL(_IS_PAUSED, []),  # noqa: S611 - constants
        )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("name",)

    @admin.display(description="paused", boolean=True)
    def is_paused(self, queue: Any) -> bool:
        return bool(queue.paused_now)

    @admin.display(description="queued jobs")
    def waiting(self, queue: Any) -> str:
        return _capped(queue.waiting_count)

    @admin.display(description="running jobs")
    def running(self, queue: Any) -> str:
        return _capped(queue.running_count)

    def is_possible(self, action: str, row: Any) -> bool:
        if action in ("order_fifo", "order_by_priority"):
            return bool((row.policy == "fifo") == (action == "order_by_priority"))
        is_paused = bool(row.paused_now)
        if action == "resume":
            return is_paused
        return not is_paused or row.paused_until is not None

    def has_manage_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("manage_queue")

    @admin.action(description="Pause selected queues", permissions=["manage"])
    def pause(self, request: HttpRequest, queryset: models.QuerySet[Queue]) -> None:
        names = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if names is None:
            return
        paused: list[Queue] = []
        already = 0
        for queue in self._rows(names):
            if queue.paused_at is not None and queue.paused_until is None:
                already += 1  # one with an end is paused anew, without
                continue
            try:
                operations.pause_queue(actor_of(request), queue.name)
            except ArgumentError as error:  # a row that was written by hand
                self.message_user(request, str(error), messages.ERROR)
            else:
                paused.append(queue)
        self.log_acts(request, paused, "Queue paused.")
        message = (
            f"{len(paused):,} paused: none of their jobs starts until they are resumed."
        )
        if already:
            message += f" {already:,} skipped: paused already."
        self.message_user(request, message, messages.SUCCESS)

    @admin.action(description="Resume selected queues", permissions=["manage"])
    def resume(self, request: HttpRequest, queryset: models.QuerySet[Queue]) -> None:
        names = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if names is None:
            return
        resumed = [
            queue
            for queue in self._rows(names)
            if operations.resume_queue(actor_of(request), queue.name)
        ]
        self.log_acts(request, resumed, "Queue resumed.")
        self.message_user(
            request,
            f"{len(resumed):,} resumed, {len(names) - len(resumed):,} skipped: not "
            "paused."
            if len(resumed) < len(names)
            else f"{len(resumed):,} resumed.",
            messages.SUCCESS,
        )

    @admin.action(description="Order by first in, first out", permissions=["manage"])
    def order_fifo(
        self, request: HttpRequest, queryset: models.QuerySet[Queue]
    ) -> None:
        self._order(request, queryset, "fifo")

    @admin.action(description="Order by priority", permissions=["manage"])
    def order_by_priority(
        self, request: HttpRequest, queryset: models.QuerySet[Queue]
    ) -> None:
        self._order(request, queryset, "priority")

    def _order(
        self, request: HttpRequest, queryset: models.QuerySet[Queue], policy: Policy
    ) -> None:
        names = self.selected_ids(request, queryset, limit=MOST_AT_ONCE)
        if names is None:
            return
        changed: list[Queue] = []
        for queue in self._rows(names):
            try:
                is_new = operations.order_queue(actor_of(request), queue.name, policy)
            except ArgumentError as error:  # a row that was written by hand
                self.message_user(request, str(error), messages.ERROR)
            else:
                changed += [queue] if is_new else []
        self.log_acts(request, changed, f"Queue ordered by {policy}.")
        message = f"{len(changed):,} changed to {policy}"
        if len(changed) < len(names):
            message += f", {len(names) - len(changed):,} skipped: {policy} already"
        self.message_user(request, f"{message}.", messages.SUCCESS)

    # --- weight, purge ---------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("weigh", self.weigh_view),
            self.page_url("purge", self.purge_view),
            *super().get_urls(),
        ]

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        found = super().tools(request, row)
        if self.has_manage_permission(request):
            found.append(Tool(label="Weigh", url=self.url_of("weigh", row.pk)))
            found.append(Tool(label="Purge", url=self.url_of("purge", row.pk)))
        return found

    def weigh_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say how often a queue is claimed from first."""
        if not self.has_manage_permission(request):
            raise PermissionDenied
        queue = self.get_object(request, unquote(object_id))
        if queue is None:
            return self.is_gone(request, object_id)
        form = WeightForm(
            request.POST or None,
            initial={"weight": queue.weight},
            widgets=self.formfield_overrides,
        )
        if form.is_valid():
            weight = form.cleaned_data["weight"]
            try:
                is_new = operations.weigh_queue(actor_of(request), queue.name, weight)
            except ArgumentError as error:  # a row that was written by hand
                form.refuse(error)
            else:
                if is_new:
                    self.log_acts(request, [queue], f"Queue weighed: {weight}.")
                text = f"The weight is {weight:,}, for workers that start from now on."
                self.message_user(request, text, messages.SUCCESS)
                return HttpResponseRedirect(self.url_of("change", queue.pk))
        return self.form_page(request, form, title="Weigh", button="Save", row=queue)

    def purge_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Delete what waits in a queue, once its name was typed."""
        if not self.has_manage_permission(request):
            raise PermissionDenied
        queue = self.get_object(request, unquote(object_id))
        if queue is None:
            return self.is_gone(request, object_id)
        expected = request.POST.get("expected", "")
        try:
            if not self.is_confirmed(request, typed=queue.name):
                return self._ask_to_purge(request, queue)
            bulk = operations.purge_queue(
                actor_of(request),
                queue.name,
                expected=int(expected) if expected.isdecimal() else None,
            )
        except (ArgumentError, Conflict, ValueError) as error:
            self.message_user(request, f"Nothing was done: {error}.", messages.ERROR)
            return HttpResponseRedirect(self.url_of("change", queue.pk))
        self.log_acts(request, [queue], "Queue purged.")
        link = self.link("bulkoperation", bulk.pk)
        message = format_html("A worker deletes them, 1,000 at a time: {}.", link)
        self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(self.url_of("change", queue.pk))

    def _ask_to_purge(self, request: HttpRequest, queue: Queue) -> HttpResponse:
        found = operations.count_purge(actor_of(request), queue.name)
        lines = [
            f"Every job of the queue {queue.name} that waits is deleted: scheduled, "
            "retrying and queued ones. Running ones go on.",
            f"Waiting now: {found.count:,}{'+' if found.is_capped else ''}.",
        ]
        if found.is_capped:
            lines.append(ALL_THERE)
        return self.ask(
            request,
            title=f"Purge the queue {queue.name}",
            lines=lines,
            button="Purge",
            typed=queue.name,
            expected="" if found.is_capped else str(found.count),
        )

    def _rows(self, names: list[str]) -> list[Queue]:
        rows = Queue.objects.using(self.alias).filter(name__in=names)
        return list(rows.only("name", "paused_at", "paused_until").order_by("name"))


def _capped(count: int) -> str:
    return f"{COUNT_CAP:,}+" if count > COUNT_CAP else f"{count:,}"
