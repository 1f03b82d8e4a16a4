"""Forms that ask for jobs: a new one, one that changes, one like another."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html

from relay import operations
from relay.admin.acting import Tool
from relay.admin.job_forms import (
    EditForm,
    EnqueueForm,
    JobForm,
    ReplayForm,
    initial_of,
    plain_arguments,
)
from relay.admin.lists import RelayAdmin, actor_of
from relay.exceptions import NotAllowed, RelayError
from relay.models import FINAL_STATES, Job, JobState
from relay.tasks import known_queues, listed_tasks

__all__ = ["JobEditing"]

# Names that a form suggests.
MOST_SUGGESTED: Final = 500
_NOT_SHOWN: Final = (
    "Some of it is masked or cut off here: left empty, it stays as it is; otherwise "
    "write all of it anew, both lists."
)


_Form = TypeVar("_Form", bound=JobForm)


class JobEditing(RelayAdmin):
    """Pages with a form that an operation takes; no row is saved by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("enqueue_job")

    def has_edit_permission(self, request: HttpRequest) -> bool:
        return actor_of(request).may("edit_job")

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Tell whether they may replay jobs with other arguments."""
        actor = actor_of(request)
        return actor.may("retry_job") and actor.may("edit_job")

    def may_repeat(self, request: HttpRequest, row: Any) -> bool:
        """Tell whether the job's task and queue are theirs to have run."""
        actor = actor_of(request)
        return actor.may_call(row.task) and actor.may_fill(row.queue)

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("edit", self.edit_view),
            self.page_url("replay", self.replay_view),
            *super().get_urls(),
        ]

    def tools(self, request: HttpRequest, row: Any) -> list[Tool]:
        found = super().tools(request, row)
        may_repeat = self.may_repeat(request, row)
        if not may_repeat:
            found = [tool for tool in found if tool.action != "replay"]
        if row.state in FINAL_STATES:
            if self.has_replay_permission(request) and may_repeat:
                url = self.url_of("replay", row.pk)
                found.append(Tool(label="Replay with changes", url=url))
        elif row.state != JobState.RUNNING and self.has_edit_permission(request):
            found.append(Tool(label="Edit", url=self.url_of("edit", row.pk)))
        return found

    # --- pages -----------------------------------------------------------------------

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Enqueue a job; a task and a queue in the address are filled in."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        initial = {
            name: request.GET[name] for name in ("task", "queue") if name in request.GET
        }
        form = EnqueueForm(
            request.POST or None, initial=initial, widgets=self.formfield_overrides
        )
        if form.is_valid():
            options = form.options()
            try:
                job = operations.enqueue_job(
                    actor_of(request), options.pop("task"), **options
                )
            except RelayError as error:
                _refuse(form, error)
            else:
                return self._enqueued(request, job)
        return self._form_page(request, form, title="Enqueue a job", button="Enqueue")

    def _enqueued(self, request: HttpRequest, job: Any) -> HttpResponse:
        link = self.link("job", job.id)
        if job.is_duplicate:
            message = format_html(
                "Nothing was enqueued: {} holds the unique key.", link
            )
            self.message_user(request, message, messages.WARNING)
        else:
            row = Job(id=job.id, task=job.task)
            self.log_acts(request, [row], "Job enqueued.", flag=ADDITION)
            message = format_html("Enqueued: {}.", link)
            self.message_user(request, message, messages.SUCCESS)
        return self._page_of(request, job.id)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a job that waits."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        if job is None:
            return self.is_gone(request, object_id)
        form = self._form_of(EditForm, request, job)
        if form.is_valid():
            options = form.options()
            if not options:
                self.message_user(request, "Nothing was changed.", messages.INFO)
                return self._page_of(request, job.pk)
            try:
                operations.edit_job(actor_of(request), job.pk, **options)
            except RelayError as error:
                _refuse(form, error)
            else:
                changed = ", ".join(sorted(options))
                self.log_acts(request, [job], f"Job edited: {changed}.", flag=CHANGE)
                self.message_user(request, "The job was changed.", messages.SUCCESS)
                return self._page_of(request, job.pk)
        return self._form_page(request, form, title="Edit", button="Save", job=job)

    def replay_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue a job like one that has ended, with other arguments."""
        if not self.has_replay_permission(request):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        if job is None:
            return self.is_gone(request, object_id)
        form = self._form_of(ReplayForm, request, job)
        if form.is_valid():
            try:
                new_id = operations.replay_job(
                    actor_of(request), job.pk, **form.options()
                )
            except RelayError as error:
                _refuse(form, error)
            else:
                self.log_acts(request, [job], "Job replayed.", flag=CHANGE)
                message = format_html("Replayed: {}.", self.link("job", new_id))
                self.message_user(request, message, messages.SUCCESS)
                return self._page_of(request, new_id)
        return self._form_page(
            request, form, title="Replay with changes", button="Replay", job=job
        )

    # --- how they look ---------------------------------------------------------------

    def _form_of(self, kind: type[_Form], request: HttpRequest, job: Any) -> _Form:
        """Return the form of a job, filled in with what may be shown of it."""
        arguments = plain_arguments(job.shown_args, job.of_payload(job.shown_args))
        form = kind(
            request.POST or None,
            initial=initial_of(job) | (arguments or {}),
            widgets=self.formfield_overrides,
        )
        if arguments is None:
            form.fields["args"].help_text = _NOT_SHOWN
        return form

    def _page_of(self, request: HttpRequest, job_id: Any) -> HttpResponse:
        """Lead to a job's page, or where they may not look at it to the start."""
        if self.has_view_permission(request):
            return HttpResponseRedirect(self.url_of("change", job_id))
        return self.response_post_save_add(request, Job(id=job_id))

    def _form_page(
        self,
        request: HttpRequest,
        form: JobForm,
        *,
        title: str,
        button: str,
        job: Any = None,
    ) -> HttpResponse:
        actor = actor_of(request)
        return self.form_page(
            request,
            form,
            title=title,
            button=button,
            row=job,
            tasks=list(filter(actor.may_call, listed_tasks()))[:MOST_SUGGESTED],
            queues=sorted(filter(actor.may_fill, known_queues()))[:MOST_SUGGESTED],
        )


def _refuse(form: JobForm, error: RelayError) -> None:
    """Say in the form why the operation was not done.

    Raises:
        PermissionDenied: they may not do it.
    """
    if isinstance(error, NotAllowed):
        raise PermissionDenied(str(error)) from error
    form.refuse(error)
