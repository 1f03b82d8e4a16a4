"""Bulk operations: how far each is, and a way to end it."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import operations, queries
from relay.dashboard.access import page
from relay.dashboard.asking import go_back, not_done
from relay.dashboard.drawing import draw, link
from relay.dashboard.sentences import said
from relay.exceptions import ArgumentError, Conflict
from relay.operations import Actor
from relay.queries.bulk import explain_bulk

__all__ = ["act_on_bulk", "bulk", "bulk_one"]


@page()
def bulk(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the bulk operations, the newest first."""
    cursor = request.GET.get("cursor") or None
    try:
        found = queries.list_bulk(actor, cursor=cursor)
    except ArgumentError:
        raise Http404 from None
    values = {"title": _("Bulk operations")}
    parts = {"bulk": lambda: {"bulk": found}}
    return draw(request, actor, "bulk.html", values, parts=parts)


@page()
def bulk_one(request: HttpRequest, actor: Actor, bulk_id: UUID) -> HttpResponse:
    """Show how far one bulk operation is."""
    found = queries.get_bulk(actor, bulk_id)
    is_open = found["state"] in ("queued", "running")
    values = {
        "title": _("Bulk operation"),
        "bulk_id": bulk_id,
        "is_open": is_open,
        "may_cancel": is_open and actor.may("bulk_job"),
    }
    reason = explain_bulk(actor, found) if found["why"] else None
    why = said(reason) if reason else None
    parts = {"bulk_one": lambda: {"bulk": found, "why": why}}
    return draw(request, actor, "bulk_one.html", values, parts=parts)


@page("POST")
def act_on_bulk(request: HttpRequest, actor: Actor, bulk_id: UUID) -> HttpResponse:
    """Let a bulk operation go no further than the chunk it is at."""
    if request.POST.get("action") != "cancel":
        raise Http404
    back = link("bulk_one", bulk_id)
    try:
        operations.cancel_bulk(actor, bulk_id)
    except Conflict as error:
        return not_done(request, back, error)
    return go_back(request, back, _("It goes no further than the chunk it is at."))
