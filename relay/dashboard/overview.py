"""The overview: what waits, what runs, what fails, who works, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.charts import jobs_chart
from relay.dashboard.drawing import draw
from relay.models import WorkerState
from relay.operations import Actor

__all__ = ["overview"]

# Of each, so many are shown; the rest has a page of its own.
SHOWN: Final = 5
LARGEST: Final = 3
_MOST: Final = 500


@page()
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show the state of things, each region by itself."""
    values = {
        "title": _("Overview"),
        "may_manage": actor.may("manage_queue"),
        "may_measure": actor.may("view_metrics"),
    }
    parts = {
        "queues": lambda: {
            "queues": queries.list_queues(actor),
            "heading": _("Queues"),
        },
        "failing": lambda: _failing(actor),
        "staff": lambda: _staff(actor),
        "upcoming": lambda: _upcoming(actor),
    }
    # A read more than a page may have; its figures are on the page of metrics too.
    later = {"throughput": lambda: _throughput(actor)}
    return draw(request, actor, "overview.html", values, parts=parts, later=later)


def _throughput(actor: Actor) -> Mapping[str, Any]:
    return {"jobs": jobs_chart(queries.get_series(actor)["results"])}


def _failing(actor: Actor) -> Mapping[str, Any]:
    found = queries.list_failures(actor)
    return {
        "groups": found["results"][:LARGEST],
        "count": sum(group["count"] for group in found["results"]),
        "capped": found["capped"],
    }


def _staff(actor: Actor) -> Mapping[str, Any]:
    found = queries.list_workers(actor, limit=_MOST)
    workers = found["results"]
    counts = Counter(worker["state"] for worker in workers)
    alive = [worker for worker in workers if worker["state"] in ("running", "quiet")]
    return {
        "counts": [(state, counts[state]) for state in WorkerState.values],
        "busy": sum(worker["running"] for worker in alive),
        "slots": sum(worker["concurrency"] for worker in alive),
        "has_more": found["next"] is not None,
    }


def _upcoming(actor: Actor) -> Mapping[str, Any]:
    found = queries.list_schedules(actor, limit=_MOST)["results"]
    late = [schedule for schedule in found if schedule["is_late"] or schedule["error"]]
    due = [
        schedule
        for schedule in found
        if schedule["enabled"] and schedule["next_due_at"] and schedule not in late
    ]
    due.sort(key=lambda schedule: str(schedule["next_due_at"]))
    return {"schedules": [*late[:SHOWN], *due[:SHOWN]], "count": len(found)}
