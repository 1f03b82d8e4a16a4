"""Metrics: what became of jobs over an hour, a day or three, as charts and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay import operations, queries
from relay.dashboard.access import page
from relay.dashboard.asking import go_back, not_done, way_back
from relay.dashboard.charts import jobs_chart, share_chart, times_chart
from relay.dashboard.drawing import draw, link
from relay.exceptions import ArgumentError
from relay.operations import Actor
from relay.tasks import known_queues, listed_tasks

__all__ = ["mark", "metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """How far back the charts go, and in which steps."""

    label: Any
    span: timedelta
    step: timedelta


_WINDOWS: Final = {
    "1h": _Window(
        label=gettext_lazy("1 hour"),
        span=timedelta(hours=1),
        step=timedelta(minutes=1),
    ),
    "24h": _Window(
        label=gettext_lazy("24 hours"),
        span=timedelta(hours=24),
        step=timedelta(minutes=15),
    ),
    "72h": _Window(
        label=gettext_lazy("72 hours"),
        span=timedelta(hours=72),
        step=timedelta(hours=1),
    ),
}


@page()
def metrics(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Draw throughput, waits and run times of all jobs, of a queue or of a task."""
    actor.require("view_metrics", "metrics")
    name = request.GET.get("window", "")
    name = name if name in _WINDOWS else "1h"
    queue = request.GET.get("queue") or None
    task = request.GET.get("task") or None
    windows = [(key, window.label, key == name) for key, window in _WINDOWS.items()]
    values = {
        "title": _("Metrics"),
        "windows": windows,
        "window": name,
        "queue": queue,
        "task": task,
        "queues": sorted(known_queues()),
        "tasks": listed_tasks(),
        "may_mark": actor.may("add_audit"),
        "longest": operations.LONGEST_LABEL,
    }
    window = _WINDOWS[name]
    parts = {
        "charts": lambda: _charts(actor, window, queue, task),
        "totals": lambda: _totals(actor, window, queue, task),
    }
    return draw(request, actor, "metrics.html", values, parts=parts)


@page("POST")
def mark(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Mark this moment on the charts."""
    back = way_back(request, link("metrics"))
    try:
        label = operations.mark(actor, request.POST.get("label", ""))
    except ArgumentError as error:
        return not_done(request, back, error)
    return go_back(request, back, _("The charts show {label}.").format(label=label))


def _charts(
    actor: Actor, window: _Window, queue: str | None, task: str | None
) -> Mapping[str, Any]:
    rows = queries.get_series(
        actor, span=window.span, step=window.step, queue=queue, task=task
    )["results"]
    ended = sum(row["completed"] + row["failed"] + row["cancelled"] for row in rows)
    failed = sum(row["failed"] for row in rows)
    marks = queries.list_marks(actor, span=window.span)["results"]
    return {
        "jobs": jobs_chart(rows, marks=marks),
        "failing": share_chart(rows, marks=marks),
        "waited": times_chart(rows, "wait", marks=marks),
        "ran": times_chart(rows, "run", marks=marks),
        "ended": ended,
        "failed": failed,
        "share": f"{failed / ended:.1%}" if ended else None,
        "rate": f"{ended / window.span.total_seconds():,.2f}",
    }


def _totals(
    actor: Actor, window: _Window, queue: str | None, task: str | None
) -> Mapping[str, Any]:
    found = queries.get_totals(actor, span=window.span, queue=queue, task=task)
    return {"totals": found["results"], "with_queue": True}
