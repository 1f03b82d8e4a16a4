"""Schedules: lists, one of them, what it will do, and what is done to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from relay import operations
from relay.api.base import ApiView, address
from relay.api.bodies import EmptyBody
from relay.api.endpoints import CURSOR, LIMIT, endpoint, whole
from relay.api.fields import (
    AnyField,
    Body,
    ChoiceField,
    InstantField,
    SpanField,
    TextField,
    WholeField,
)
from relay.api.looks import JOB, SCHEDULE
from relay.api.once import once
from relay.conf import get_settings
from relay.exceptions import NotFound
from relay.models import CatchUp, Overlap, Schedule
from relay.queries import jobs, schedules
from relay.queries.documents import (
    FireDocument,
    JobDetail,
    ScheduleDetail,
    SchedulePage,
)

__all__ = [
    "NextView",
    "PauseView",
    "PreviewView",
    "ResumeView",
    "ScheduleView",
    "SchedulesView",
    "TriggerView",
]

_MILLISECOND: Final = timedelta(milliseconds=1)
# Columns of milliseconds, by the names of the spans that bodies and answers have.
_SPANS: Final = {
    "every": "every_ms",
    "spread": "spread_ms",
    "success_within": "success_within_ms",
    "catch_up_window": "catch_up_window_ms",
}
# What may be null in a body and is a text in the row.
_EMPTY: Final = {"cron": ""}


class EditScheduleBody(Body):
    """What shall change of a schedule."""

    task = TextField(required=False, max_length=200)
    args = serializers.ListField(child=AnyField(), required=False)
    kwargs = serializers.DictField(child=AnyField(), required=False)
    queue = TextField(required=False, allow_null=True)
    priority = WholeField(
        required=False, allow_null=True, min_value=-100, max_value=100
    )
    cron = TextField(required=False, allow_null=True, max_length=256)
    every = SpanField(required=False, allow_null=True)
    once_at = InstantField(required=False, allow_null=True)
    timezone = TextField(required=False, max_length=100)
    starts_at = InstantField(required=False, allow_null=True)
    ends_at = InstantField(required=False, allow_null=True)
    excluded = TextField(required=False, allow_null=True, max_length=10_000)
    spread = SpanField(required=False, allow_null=True)
    catch_up = ChoiceField(CatchUp.values, required=False)
    catch_up_window = SpanField(required=False)
    overlap = ChoiceField(Overlap.values, required=False)
    success_within = SpanField(required=False, allow_null=True)
    enabled = serializers.BooleanField(required=False)


class ScheduleBody(EditScheduleBody):
    """A new schedule: one of cron, every and once_at says when."""

    name = TextField(max_length=200)
    task = TextField(max_length=200)


class PreviewBody(Body):
    """When a schedule would be due, if it were one."""

    cron = TextField(required=False, allow_null=True, max_length=256)
    every = SpanField(required=False, allow_null=True)
    once_at = InstantField(required=False, allow_null=True)
    timezone = TextField(required=False, max_length=100)
    starts_at = InstantField(required=False, allow_null=True)
    ends_at = InstantField(required=False, allow_null=True)
    excluded = TextField(required=False, allow_null=True, max_length=10_000)
    spread = SpanField(required=False, allow_null=True)
    n = WholeField(required=False, min_value=1, max_value=100)


def set_values(schedule: Schedule, values: Mapping[str, Any]) -> list[str]:
    """Set what a body says on a row; return the columns that it is about."""
    changed: list[str] = []
    for name, value in values.items():
        if name in ("args", "kwargs"):
            continue
        column = _SPANS.get(name, name)
        if column != name and value is not None:
            value = value // _MILLISECOND
        setattr(schedule, column, _EMPTY.get(name, value) if value is None else value)
        changed.append(column)
        if name == "cron":
            schedule.seconds = has_seconds(value)
            changed.append("seconds")
    if "args" in values or "kwargs" in values:
        schedule.args = {
            "args": values.get("args", []),
            "kwargs": values.get("kwargs", {}),
        }
        changed.append("args")
    return changed


def has_seconds(cron: str | None) -> bool:
    """Tell whether an expression has six fields, the second first."""
    return len((cron or "").split()) == 6


class SchedulesView(ApiView):
    """/v1/schedules."""

    @endpoint(
        "view_schedule", {200: SchedulePage}, query={"limit": LIMIT, "cursor": CURSOR}
    )
    def get(self, request: Request) -> Response:
        """List the schedules by name."""
        return self.page(request, schedules.list_schedules(self.actor, **self.query))

    @endpoint(
        "manage_schedule",
        {201: ScheduleDetail},
        body=ScheduleBody,
        codes=("conflict",),
        is_once=True,
    )
    def post(self, request: Request) -> Response:
        """Add a schedule."""
        values = self.read(request)

        def act() -> Response:
            schedule = Schedule()
            set_values(schedule, values)
            operations.create_schedule(self.actor, schedule)
            found = schedules.get_schedule(self.who.seeing(), schedule.name)
            place = address(request, "schedule", schedule.name)
            return Response(found, status=201, headers={"Location": place})

        return once(request, self.who, act, look=SCHEDULE)


class OneScheduleView(ApiView):
    """What the views of one schedule share."""

    def row(self, name: str) -> Schedule:
        """Return the row of a schedule; what an act needs of it, it reads itself.

        Raises:
            NotFound: there is none.
        """
        rows = Schedule.objects.using(get_settings().database)
        found = rows.filter(name=name).only("id", "name").first()
        if found is None:
            raise NotFound(f"schedule {name!r} does not exist")
        return found

    def shown(self, name: str) -> Response:
        """Answer with a schedule that the caller has changed."""
        return Response(schedules.get_schedule(self.who.seeing(), name))


class ScheduleView(OneScheduleView):
    """/v1/schedules/{name}."""

    @endpoint("view_schedule", {200: ScheduleDetail}, codes=("not_found",))
    def get(self, request: Request, name: str) -> Response:
        """Return one schedule, with its next runs and what became of its last."""
        return Response(schedules.get_schedule(self.actor, name))

    @endpoint(
        "manage_schedule",
        {200: ScheduleDetail},
        body=EditScheduleBody,
        codes=("not_found", "conflict"),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change a schedule that is not declared in code."""
        values = self.read(request)
        schedule = self.row(name)
        operations.edit_schedule(self.actor, schedule, set_values(schedule, values))
        return self.shown(name)

    @endpoint("manage_schedule", {204: None}, codes=("not_found", "conflict"))
    def delete(self, request: Request, name: str) -> Response:
        """Delete a schedule that is not declared in code; its jobs stay."""
        operations.delete_schedule(self.actor, self.row(name).pk)
        return Response(None, status=204)


class TriggerView(OneScheduleView):
    """/v1/schedules/{name}/trigger."""

    @endpoint(
        "run_schedule",
        {201: JobDetail},
        body=EmptyBody,
        codes=("not_found",),
        is_once=True,
    )
    def post(self, request: Request, name: str) -> Response:
        """Enqueue a schedule's job now, apart from its due instants."""
        self.read(request)

        def act() -> Response:
            job_id = operations.run_schedule(self.actor, self.row(name).pk)
            found = jobs.get_job(self.who.seeing(), job_id)
            headers = {"Location": address(request, "job", job_id)}
            return Response(found, status=201, headers=headers)

        return once(request, self.who, act, look=JOB)


class PauseView(OneScheduleView):
    """/v1/schedules/{name}/pause."""

    @endpoint(
        "manage_schedule",
        {200: ScheduleDetail},
        body=EmptyBody,
        codes=("not_found",),
    )
    def post(self, request: Request, name: str) -> Response:
        """Let a schedule run no more until it is resumed."""
        self.read(request)
        operations.pause_schedules(self.actor, [self.row(name).pk])
        return self.shown(name)


class ResumeView(OneScheduleView):
    """/v1/schedules/{name}/resume."""

    @endpoint(
        "manage_schedule",
        {200: ScheduleDetail},
        body=EmptyBody,
        codes=("not_found",),
    )
    def post(self, request: Request, name: str) -> Response:
        """Let a paused schedule run again, from now on."""
        self.read(request)
        operations.resume_schedules(self.actor, [self.row(name).pk])
        return self.shown(name)


class NextView(OneScheduleView):
    """/v1/schedules/{name}/next."""

    @endpoint(
        "view_schedule",
        {200: list[FireDocument]},
        query={"n": whole("How many; 5 unless given.", 1, 100)},
        codes=("not_found",),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the next runs of a schedule."""
        count = self.query.get("n", 5)
        return Response(schedules.next_fires(self.actor, name, limit=count))


class PreviewView(ApiView):
    """/v1/schedules/preview."""

    @endpoint("view_schedule", {200: list[FireDocument]}, body=PreviewBody)
    def post(self, request: Request) -> Response:
        """List when a schedule would run; nothing is kept."""
        values = self.read(request)
        count = values.pop("n", 5)
        given = {name: value for name, value in values.items() if value is not None}
        given["seconds"] = has_seconds(given.get("cron"))
        return Response(schedules.preview(self.actor, **given, limit=count))
