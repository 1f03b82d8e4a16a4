"""The overview: what waits, what runs, what fails, who works, what comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.charts import OUTCOMES, jobs_chart, spark_of
from relay.dashboard.drawing import draw
from relay.dashboard.shared import shared
from relay.exceptions import NotAllowed, ReadTimeout
from relay.models import WorkerState
from relay.operations import Actor
from relay.queries.documents import (
    ActivityDocument,
    FailurePage,
    QueueDocument,
    SchedulePage,
    WorkerPage,
)

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

    def kept(name: str, read: Callable[[], Any]) -> Any:
        return shared(request, actor, name, read)

    @cache
    def activity() -> ActivityDocument:
        """Return the last hour, which two regions are drawn from."""
        actor.require("view_metrics", "overview")
        found: ActivityDocument = kept("activity", lambda: queries.get_activity(actor))
        return found

    def queues() -> Mapping[str, Any]:
        found = kept("queues", lambda: queries.list_queues(actor))
        return {**_with_sparks(found, activity), "heading": _("Queues")}

    def failing() -> Mapping[str, Any]:
        return _failing(kept("failures", lambda: queries.list_failures(actor)))

    def staff() -> Mapping[str, Any]:
        found = kept("workers", lambda: queries.list_workers(actor, limit=_MOST))
        return _staff(found)

    def upcoming() -> Mapping[str, Any]:
        found = kept("schedules", lambda: queries.list_schedules(actor, limit=_MOST))
        return _upcoming(found)

    parts = {
        "queues": queues,
        "throughput": lambda: {"jobs": jobs_chart(_steps(activity()))},
        "failing": failing,
        "staff": staff,
        "upcoming": upcoming,
    }
    return draw(request, actor, "overview.html", values, parts=parts)


def _with_sparks(
    queues: Sequence[QueueDocument], activity: Callable[[], ActivityDocument]
) -> Mapping[str, Any]:
    try:
        known = activity()["queues"]
    except (NotAllowed, ReadTimeout):
        return {"queues": queues}
    rows = [{**each, "spark": spark_of(known.get(each["name"], ()))} for each in queues]
    return {"queues": rows, "with_sparks": True}


def _steps(found: ActivityDocument) -> list[dict[str, Any]]:
    """Return how attempts ended in all queues together, one dict a step."""
    begin = datetime.fromisoformat(found["since"])
    step = timedelta(seconds=found["step"])
    count = round(timedelta(hours=1) / step)
    steps: list[dict[str, Any]] = [
        {"at": (begin + step * place).isoformat(), **dict.fromkeys(OUTCOMES, 0)}
        for place in range(count)
    ]
    for rows in found["queues"].values():
        for whole, row in zip(steps, rows, strict=True):
            for name in OUTCOMES:
                whole[name] += row.get(name, 0)
    return steps


def _failing(found: FailurePage) -> Mapping[str, Any]:
    return {
        "groups": found["results"][:LARGEST],
        "count": sum(group["count"] for group in found["results"]),
        "capped": found["capped"],
    }


def _staff(found: WorkerPage) -> Mapping[str, Any]:
    workers = found["results"]
    counts = Counter(worker["state"] for worker in workers)
    alive = [worker for worker in workers if worker["state"] in ("running", "quiet")]
    return {
        "counts": [(state, counts[state]) for state in WorkerState.values],
        "busy": sum(worker["running"] for worker in alive),
        "slots": sum(worker["concurrency"] for worker in alive),
        "has_more": found["next"] is not None,
    }


def _upcoming(page: SchedulePage) -> Mapping[str, Any]:
    found = page["results"]
    late = [schedule for schedule in found if schedule["is_late"] or schedule["error"]]
    due = [
        schedule
        for schedule in found
        if schedule["enabled"] and schedule["next_due_at"] and schedule not in late
    ]
    due.sort(key=lambda schedule: str(schedule["next_due_at"]))
    return {"schedules": [*late[:SHOWN], *due[:SHOWN]], "count": len(found)}
