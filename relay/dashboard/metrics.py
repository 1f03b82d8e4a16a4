"""Metrics: what became of jobs over an hour, a day or three, as charts and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.charts import jobs_chart, times_chart
from relay.dashboard.drawing import draw
from relay.operations import Actor
from relay.tasks import all_tasks, known_queues

__all__ = ["metrics"]


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
        "tasks": sorted(all_tasks()),
    }
    window = _WINDOWS[name]
    parts = {
        "charts": lambda: _charts(actor, window, queue, task),
        "totals": lambda: _totals(actor, window, queue, task),
    }
    return draw(request, actor, "metrics.html", values, parts=parts)


def _charts(
    actor: Actor, window: _Window, queue: str | None, task: str | None
) -> Mapping[str, Any]:
    rows = queries.get_series(
        actor, span=window.span, step=window.step, queue=queue, task=task
    )["results"]
    ended = sum(row["completed"] + row["failed"] + row["cancelled"] for row in rows)
    failed = sum(row["failed"] for row in rows)
    return {
        "jobs": jobs_chart(rows),
        "waited": times_chart(rows, "wait"),
        "ran": times_chart(rows, "run"),
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
