"""Queues: what waits and runs in each; pause, resume, order, weigh, purge."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import operations, queries
from relay.dashboard.access import page
from relay.dashboard.asking import (
    Question,
    ask,
    go_back,
    not_done,
    told_of,
    way_back,
)
from relay.dashboard.charts import jobs_chart, times_chart
from relay.dashboard.drawing import draw, link
from relay.exceptions import ArgumentError, Conflict
from relay.operations import Actor

__all__ = ["act_on_queue", "queue", "queues"]

# For how long a queue may be paused from here, besides until it is resumed.
PAUSES: Final = (10, 60, 24 * 60)


@page()
def queues(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the queues."""
    actor.require("view_queue", "list_queues")
    values = {"title": _("Queues"), "may_manage": actor.may("manage_queue")}
    parts = {"queues": lambda: {"queues": queries.list_queues(actor)}}
    return draw(request, actor, "queues.html", values, parts=parts)


@page()
def queue(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Show one queue, with what its last hour was like."""
    values = {
        "title": name,
        "may_manage": actor.may("manage_queue"),
        "pauses": PAUSES,
    }
    found = queries.get_queue(actor, name)
    parts = {
        "queue": lambda: {"queue": found},
        "queue_charts": lambda: _charts(actor, name),
    }
    return draw(request, actor, "queue.html", values, parts=parts)


def _charts(actor: Actor, name: str) -> Mapping[str, Any]:
    rows = queries.get_series(actor, queue=name)["results"]
    marks = queries.list_marks(actor)["results"]
    return {
        "jobs": jobs_chart(rows, marks=marks),
        "times": times_chart(rows, "wait", marks=marks),
        "totals": queries.get_totals(actor, queue=name)["results"],
    }


@page("POST")
def act_on_queue(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Pause, resume, order, weigh or purge a queue; ask before a purge."""
    back = way_back(request, link("queues"))
    action = request.POST.get("action", "")
    try:
        if action == "purge":
            return _purge(request, actor, name, back)
        told = _act(request, actor, name, action)
    except (ArgumentError, Conflict) as error:
        return not_done(request, back, error)
    return go_back(request, back, told)


def _act(request: HttpRequest, actor: Actor, name: str, action: str) -> str:
    known = {"name": name}
    if action == "pause":
        minutes = request.POST.get("minutes", "")
        if minutes in map(str, PAUSES):
            until = datetime.now(UTC) + timedelta(minutes=int(minutes))
            operations.pause_queue(actor, name, until=until)
            return _("{name} is paused for {span}.").format(
                **known, span=f"{minutes} min"
            )
        operations.pause_queue(actor, name)
        return _("{name} is paused: it starts no job until it is resumed.").format(
            **known
        )
    if action == "resume":
        if operations.resume_queue(actor, name):
            return _("{name} goes on.").format(**known)
        return _("{name} was not paused.").format(**known)
    if action == "weigh":
        text = request.POST.get("weight", "")
        weight = int(text) if text.isdecimal() and len(text) < 10 else 0
        operations.weigh_queue(actor, name, weight)
        return _("{name} weighs {weight}, for workers that start from now on.").format(
            **known, weight=weight
        )
    if action in ("fifo", "priority"):
        operations.order_queue(actor, name, action)  # type: ignore[arg-type] # one of the two
        if action == "fifo":
            return _("{name} runs its jobs first in, first out.").format(**known)
        return _("{name} runs its jobs by priority.").format(**known)
    raise Http404


def _purge(request: HttpRequest, actor: Actor, name: str, back: str) -> HttpResponse:
    actor.require("manage_queue", "purge_queue")
    found = told_of(request) or operations.count_purge(actor, name)
    if not found.count:
        told = _("No job matches: nothing was changed.")
        return go_back(request, back, told, messages.WARNING)
    count = f"{found.count:,}{'+' if found.is_capped else ''}"
    carried = [("expected", str(found.count))]
    if found.is_capped:
        carried.append(("capped", "yes"))
    question = Question(
        title=_("Delete all that waits in {name}?").format(name=name),
        text=_(
            "Jobs that are queued, scheduled or retrying are gone for good; what runs "
            "goes on."
        )
        + " "
        + _("Waiting now: {count}.").format(count=count),
        button=_("Purge {name}").format(name=name),
        typed=name,
        is_grave=True,
        carried=tuple(carried),
    )
    asked = ask(request, actor, question, back=back)
    if asked is not None:
        return asked
    expected = None if found.is_capped else found.count
    bulk = operations.purge_queue(actor, name, expected=expected)
    told = _("A worker deletes what waits in {name}.").format(name=name)
    return go_back(request, link("bulk_one", bulk.pk), told, messages.SUCCESS)
