"""Jobs: the list by state and filter, and the page of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from relay import operations, queries
from relay.conf import OWN_QUEUE
from relay.dashboard.access import page
from relay.dashboard.drawing import draw, link
from relay.dashboard.elsewhere import leads, lines, may_replay, trace_of
from relay.dashboard.sentences import said
from relay.dashboard.verbs import verbs_for
from relay.exceptions import ArgumentError
from relay.ids import read_id
from relay.models import FINAL_STATES, JobState
from relay.operations import QUALIFIERS, Actor, JobFilter
from relay.queries.why import explain
from relay.tasks import known_queues, listed_tasks

__all__ = ["job", "jobs"]

PER_PAGE: Final = 50
# The fields of the search; the rest of the query stays as it is.
_FIELDS: Final = ("q", "queue", "task")
# Of the query, what does not say which jobs.
_OTHER: Final = ("part", "cursor")
_FINAL: Final = frozenset(state.value for state in FINAL_STATES)
# By the first column of an order, which of the list's it is.
_SORTED: Final = {"-id": "created", "run_at": "run_at", "-finished_at": "finished"}
# What the page of one shows besides, by ?show=; without it, why it does not run.
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "past": ("attempts", "history"),
    "logs": ("logs", "steps"),
}
# A job's usual way; it ends at one of the last three.
_WAY: Final = ("queued", "running")
_BEFORE: Final = ("blocked", "scheduled", "retrying")


@page()
def jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List jobs, a page of them, with a way to act on them."""
    actor.require("view_job", "list_jobs")
    given = {n: request.GET[n].strip() for n in request.GET if n not in _OTHER}
    given = {n: v for n, v in given.items() if v}
    if (job_id := read_id(given.get("q", ""))) is not None:
        return HttpResponseRedirect(link("job", job_id))
    wanted, wrong = JobFilter(()), None
    try:
        wanted = operations.from_parameters(given)
    except ArgumentError as error:
        wrong = str(error)
    for permission in sorted(wanted.permissions):
        actor.require(permission, "list_jobs")
    values = {
        "title": _("Jobs"),
        "given": given,
        "others": [(n, v) for n, v in given.items() if n not in _FIELDS],
        "filter": str(wanted),
        "queues": sorted(known_queues()),
        "tasks": listed_tasks(),
        "qualifiers": [name for name in QUALIFIERS if name != "args.<path>"],
        "verbs": [] if wrong else verbs_for(actor, wanted.states),
        "may_bulk": actor.may("bulk_job") and not (wanted.is_empty or wrong),
        "may_enqueue": actor.may("enqueue_job"),
        "sorted_by": _SORTED.get(wanted.order[0]),
    }
    cursor = request.GET.get("cursor") or None
    parts = {
        "tabs": lambda: {"tabs": _tabs(actor, given.get("state"))},
        "jobs": lambda: _listed(actor, wanted, cursor, wrong),
    }
    return draw(request, actor, "jobs.html", values, parts=parts)


def _listed(
    actor: Actor, wanted: JobFilter, cursor: str | None, wrong: str | None
) -> Mapping[str, Any]:
    if wrong is None:
        try:
            found = queries.list_jobs(actor, wanted, limit=PER_PAGE, cursor=cursor)
        except ArgumentError as error:
            wrong = str(error)
        else:
            return {"jobs": found}
    return {"jobs": {}, "wrong": wrong}


def _tabs(actor: Actor, chosen: str | None) -> list[Mapping[str, Any]]:
    counts = queries.states(actor)
    tabs: list[Mapping[str, Any]] = [
        {"state": None, "label": _("all"), "is_chosen": not chosen}
    ]
    for state in JobState.values:
        is_chosen = state == chosen
        tabs.append({"state": state, "count": counts[state], "is_chosen": is_chosen})
    return tabs


@page()
def job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Show one job, and of the rest why it does not run, its past, or its logs."""
    show = request.GET.get("show", "now")
    found = queries.get_job(actor, job_id, include=_SHOWN.get(show, ()))
    state = found["state"]
    is_over = state in _FINAL
    may_again = may_replay(actor, found)
    values = {
        "title": found["task"],
        "job_id": job_id,
        "is_over": is_over,
        "show": show if show in _SHOWN else "now",
    }
    parts = {
        "job": lambda: {
            "job": found,
            "way": list(_way(found)),
            "why": None if show in _SHOWN else said(explain(actor, job_id)),
            "verbs": [
                verb
                for verb in verbs_for(actor, [state])
                if verb.name != "replay" or may_again
            ],
            "has_queue": found["queue"] != OWN_QUEUE,
            "lines": () if show in _SHOWN else lines(request, actor, found),
            "leads": leads(found),
            "trace_id": trace_of(found["meta"]),
            "may_edit": actor.may("edit_job") and not is_over and state != "running",
            "may_replay_with": may_again and actor.may("edit_job"),
        }
    }
    return draw(request, actor, "job.html", values, parts=parts)


def _way(found: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the states that the job goes through, and which it has been in."""
    state = found["state"]
    before = [each for each in _BEFORE if each == state]
    has_run = found["attempt"] > 0
    for each in (*before, *_WAY):
        yield {
            "state": each,
            "has_been": each == state or each == "queued" or has_run,
            "is_here": each == state,
        }
    end = state if state in _FINAL else "completed"
    yield {"state": end, "has_been": state in _FINAL, "is_here": end == state}
