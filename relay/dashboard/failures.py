"""Failures: by task, error and the first line of what it says."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.drawing import draw
from relay.dashboard.verbs import verbs_for
from relay.operations import Actor

__all__ = ["failures"]


@page()
def failures(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List groups of failed jobs, with a way to act on each as a whole."""
    actor.require("view_job", "list_failures")
    values = {
        "title": _("Failures"),
        "verbs": verbs_for(actor, ["failed"]) if actor.may("bulk_job") else [],
    }
    parts = {"failures": lambda: {"failures": queries.list_failures(actor)}}
    return draw(request, actor, "failures.html", values, parts=parts)
