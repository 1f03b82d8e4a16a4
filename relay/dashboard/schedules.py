"""Schedules: when each runs and how it went; run now, pause, resume, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from relay import operations, queries
from relay.dashboard.access import page
from relay.dashboard.asking import Question, ask, go_back, not_done, way_back
from relay.dashboard.drawing import draw, link
from relay.dashboard.verbs import job_link
from relay.exceptions import ArgumentError, Conflict, ScheduleError
from relay.operations import Actor

__all__ = ["act_on_schedule", "schedule", "schedules"]


@page()
def schedules(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the schedules."""
    cursor = request.GET.get("cursor") or None
    try:
        found = queries.list_schedules(actor, cursor=cursor)
    except ArgumentError:
        raise Http404 from None
    values = {"title": _("Schedules"), **_rights(actor, found["results"])}
    parts = {"schedules": lambda: {"schedules": found}}
    return draw(request, actor, "schedules.html", values, parts=parts)


@page()
def schedule(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Show one schedule: its next runs and what became of its latest ones."""
    found = queries.get_schedule(actor, name)
    values = {"title": found["name"], **_rights(actor, [found])}
    parts = {"schedule": lambda: {"schedule": found}}
    return draw(request, actor, "schedule.html", values, parts=parts)


def _rights(actor: Actor, shown: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    may_run = actor.may("run_schedule")
    theirs = {
        each["name"]
        for each in shown
        if may_run and operations.may_have_run(actor, each["task"], each["queue"])
    }
    may_manage = actor.may("manage_schedule")
    return {
        "may_run": theirs,
        "may_manage": may_manage,
        "may_add": may_manage and actor.may("enqueue_job"),
    }


@page("POST")
def act_on_schedule(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Run, pause, resume or delete a schedule; ask before the last."""
    back = way_back(request, link("schedules"))
    action = request.POST.get("action", "")
    schedule_id = UUID(queries.get_schedule(actor, name)["id"])
    if action == "delete":
        actor.require("manage_schedule", "delete_schedule")
        question = Question(
            title=_("Delete the schedule {name}?").format(name=name),
            text=_("It is gone for good, with its occurrences; its jobs stay."),
            button=_("Delete it"),
            typed=name,
            is_grave=True,
        )
        asked = ask(request, actor, question, back=back)
        if asked is not None:
            return asked
        back = link("schedules")
    try:
        told = _act(actor, schedule_id, name, action)
    except (Conflict, ScheduleError) as error:
        return not_done(request, back, error)
    return go_back(request, back, told)


def _act(actor: Actor, schedule_id: UUID, name: str, action: str) -> str | SafeString:
    if action == "run":
        job_id = operations.run_schedule(actor, schedule_id)
        return format_html(_("{} runs now: {}"), name, job_link(job_id))
    if action == "pause":
        changed = operations.pause_schedules(actor, [schedule_id])
        told = _("{name} is paused.") if changed else _("{name} was paused already.")
        return told.format(name=name)
    if action == "resume":
        changed = operations.resume_schedules(actor, [schedule_id])
        told = _("{name} runs again.") if changed else _("{name} was not paused.")
        return told.format(name=name)
    if action == "delete":
        operations.delete_schedule(actor, schedule_id)
        return _("{name} is deleted.").format(name=name)
    raise Http404
