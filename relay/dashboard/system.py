"""The system: versions, settings in force, checks, tables, and who did what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.drawing import draw
from relay.dashboard.words import NOTHING, span
from relay.exceptions import ArgumentError
from relay.operations import Actor
from relay.queries.system import settings_in_force

__all__ = ["system"]


@page()
def system(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show what runs here, whether it is sound, and the record of acts."""
    cursor = request.GET.get("cursor") or None
    found = queries.get_system(actor)
    values = {
        "title": _("System"),
        "system": found,
        "settings": {name: written(v) for name, v in settings_in_force().items()},
    }
    try:
        audit = queries.list_audit(actor, cursor=cursor) if _may(actor) else None
    except ArgumentError:
        raise Http404 from None
    return draw(request, actor, "system.html", {**values, "audit": audit})


def written(value: Any) -> str:
    """Return a setting as people write it: 30 s, yes, mail, default."""
    if value is None or value in ("", {}, []):
        return NOTHING
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, timedelta):
        return span(value.total_seconds())
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {written(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(written, value))
    return str(value)


def _may(actor: Actor) -> bool:
    return actor.may("view_audit")
