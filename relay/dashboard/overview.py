"""The overview: what waits, what runs, what fails, who works, what comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, TypeVar

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from relay import queries
from relay.dashboard.access import page
from relay.dashboard.charts import OUTCOMES, jobs_chart, spark_of
from relay.dashboard.drawing import draw
from relay.dashboard.overview_warnings import Warned, warnings_of
from relay.dashboard.shared import shared
from relay.exceptions import NotAllowed, ReadTimeout
from relay.operations import Actor
from relay.queries.documents import (
    ActivityDocument,
    FailurePage,
    QueueDocument,
    SoundnessDocument,
    UpcomingDocument,
    WorkerCounts,
)

__all__ = ["overview"]

T = TypeVar("T")

# Of these so many are shown; the rest has a page of its own.
LARGEST: Final = 3
# Migrations and clocks are looked at so often: it takes three statements.
STEADY_SECONDS: Final = 30.0


class _Figures:
    """What the regions are drawn from: each read once, and shared with others."""

    def __init__(self, request: HttpRequest, actor: Actor) -> None:
        self._request, self._actor = request, actor

    def _kept(self, name: str, read: Callable[[], T], *, steady: float = 0) -> T:
        return shared(self._request, self._actor, name, read, steady=steady)

    @cached_property
    def activity(self) -> ActivityDocument:
        """The last hour."""
        self._actor.require("view_metrics", "overview")
        return self._kept("activity", lambda: queries.get_activity(self._actor))

    @cached_property
    def queues(self) -> list[QueueDocument]:
        return self._kept("queues", lambda: queries.list_queues(self._actor))

    @cached_property
    def failures(self) -> FailurePage:
        return self._kept("failures", lambda: queries.list_failures(self._actor))

    @cached_property
    def workers(self) -> WorkerCounts:
        return self._kept("workers", lambda: queries.count_workers(self._actor))

    @cached_property
    def schedules(self) -> UpcomingDocument:
        return self._kept("schedules", lambda: queries.get_upcoming(self._actor))

    @cached_property
    def soundness(self) -> SoundnessDocument:
        return self._kept(
            "soundness",
            lambda: queries.get_soundness(self._actor),
            steady=STEADY_SECONDS,
        )


@page()
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show the state of things, each region by itself."""
    values = {
        "title": _("Overview"),
        "may_manage": actor.may("manage_queue"),
        "may_measure": actor.may("view_metrics"),
    }
    found = _Figures(request, actor)
    parts = {
        "warnings": lambda: {"warnings": _warnings(found)},
        "queues": lambda: {**_with_sparks(found), "heading": _("Queues")},
        "throughput": lambda: {"jobs": jobs_chart(_steps(found.activity))},
        "failing": lambda: _failing(found.failures),
        "staff": lambda: _staff(found.workers),
        "upcoming": lambda: _upcoming(found.schedules),
    }
    return draw(request, actor, "overview.html", values, parts=parts)


def _warnings(found: _Figures) -> list[Warned]:
    return warnings_of(
        soundness=lambda: found.soundness,
        workers=lambda: found.workers,
        queues=lambda: found.queues,
        schedules=lambda: found.schedules,
    )


def _with_sparks(found: _Figures) -> Mapping[str, Any]:
    queues = found.queues
    try:
        known = found.activity["queues"]
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


def _staff(found: WorkerCounts) -> Mapping[str, Any]:
    return {
        "counts": [*found["states"].items()],
        "busy": found["busy"],
        "slots": found["slots"],
    }


def _upcoming(found: UpcomingDocument) -> Mapping[str, Any]:
    return {"schedules": [*found["late"], *found["next"]]}
