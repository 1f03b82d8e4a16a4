"""The system: versions, settings in force, checks, tables, and who did what."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.drawing import draw
from relay.exceptions import ArgumentError
from relay.operations import Actor

__all__ = ["system"]


@page()
def system(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show what runs here, whether it is sound, and the record of acts."""
    cursor = request.GET.get("cursor") or None
    values = {"title": _("System"), "system": queries.get_system(actor)}
    try:
        audit = queries.list_audit(actor, cursor=cursor) if _may(actor) else None
    except ArgumentError:
        raise Http404 from None
    return draw(request, actor, "system.html", {**values, "audit": audit})


def _may(actor: Actor) -> bool:
    return actor.may("view_audit")
