"""Workers: who runs jobs, what each holds; quiet, resume, shut down, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay import operations, queries
from relay.dashboard.access import page
from relay.dashboard.asking import Question, ask, go_back, not_done, way_back
from relay.dashboard.drawing import draw, link
from relay.exceptions import ArgumentError, Conflict
from relay.operations import Actor

__all__ = ["act_on_worker", "worker", "workers"]

_ACTS: Final[Mapping[str, tuple[Callable[[Actor, UUID], object], Any]]] = {
    "quiet": (operations.quiet_worker, gettext_lazy("It claims nothing more.")),
    "resume": (operations.resume_worker, gettext_lazy("It claims again.")),
    "stop": (operations.stop_worker, gettext_lazy("It ends once its jobs have.")),
    "delete": (operations.delete_worker, gettext_lazy("Its row is deleted.")),
}


@page()
def workers(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the workers."""
    cursor = request.GET.get("cursor") or None
    values = {"title": _("Workers"), "may_manage": actor.may("manage_worker")}
    try:
        found = queries.list_workers(actor, cursor=cursor)
    except ArgumentError:
        raise Http404 from None
    parts = {"workers": lambda: {"workers": found}}
    return draw(request, actor, "workers.html", values, parts=parts)


@page()
def worker(request: HttpRequest, actor: Actor, worker_id: UUID) -> HttpResponse:
    """Show one worker and the jobs that it runs."""
    found = queries.get_worker(actor, worker_id)
    values = {"title": found["name"], "may_manage": actor.may("manage_worker")}
    parts = {"worker": lambda: {"worker": found}}
    return draw(request, actor, "worker.html", values, parts=parts)


@page("POST")
def act_on_worker(request: HttpRequest, actor: Actor, worker_id: UUID) -> HttpResponse:
    """Quiet, resume, shut down or delete a worker; ask before it is shut down."""
    action = request.POST.get("action", "")
    if action not in _ACTS:
        raise Http404
    run, told = _ACTS[action]
    back = way_back(request, link("workers"))
    actor.require("manage_worker", run.__name__)
    if action == "stop":
        question = Question(
            title=_("Shut down this worker?"),
            text=_(
                "All children of its process drain: running jobs have their grace, "
                "then they are handed back. What starts processes may start it again."
            ),
            button=_("Shut it down"),
        )
        asked = ask(request, actor, question, back=back)
        if asked is not None:
            return asked
    try:
        run(actor, worker_id)
    except Conflict as error:
        return not_done(request, back, error)
    if action == "delete" and back.startswith(link("worker", worker_id)):
        back = link("workers")  # its own page is gone with it
    return go_back(request, back, str(told))
