"""What is done to jobs: to one, to those that are ticked, to all that match."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from relay import operations
from relay.dashboard.access import page
from relay.dashboard.asking import (
    Question,
    ask,
    go_back,
    not_done,
    told_of,
    way_back,
)
from relay.dashboard.drawing import link
from relay.dashboard.verbs import VERBS, Verb, job_link, report_of
from relay.exceptions import ArgumentError, Conflict, DecodeError, MissingKey
from relay.operations import AT_ONCE, Actor, Matched

__all__ = ["act_on_all", "act_on_job", "act_on_jobs"]

# More jobs than this are not acted on by a click alone.
CLICK: Final = 100

_REFUSED: Final = (ArgumentError, Conflict, DecodeError, MissingKey)


@page("POST")
def act_on_job(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    """Do something to one job; ask before it is cancelled or deleted."""
    verb = _verb(request)
    here = link("job", job_id)
    actor.require(verb.permission, verb.name)
    if verb.is_asked:
        question = _question(verb, 1, _("Job {id}.").format(id=job_id))
        asked = ask(request, actor, question, back=here)
        if asked is not None:
            return asked
    if verb.name == "replay":
        return _replayed(request, actor, job_id)
    return _done(
        request, actor, verb, [job_id], link("jobs") if verb.is_grave else here
    )


@page("POST")
def act_on_jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Do something to the jobs that were ticked, up to AT_ONCE of them."""
    verb = _verb(request)
    back = way_back(request, link("jobs"))
    ids = _ids(request)
    actor.require(verb.permission, verb.name)
    if not ids:
        return go_back(request, back, _("No job was ticked."), messages.WARNING)
    if len(ids) > AT_ONCE:
        text = _("{count} jobs are too many to tick: act on all that match instead.")
        text = text.format(count=f"{len(ids):,}")
        return go_back(request, back, text, messages.ERROR)
    if len(ids) > 1 or verb.is_asked:
        asked = ask(request, actor, _question(verb, len(ids), ""), back=back)
        if asked is not None:
            return asked
    return _done(request, actor, verb, ids, back)


@page("POST")
def act_on_all(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Do something to all jobs that match a filter, in the background."""
    verb = _verb(request)
    back = way_back(request, link("jobs"))
    for permission in ("bulk_job", verb.permission):
        actor.require(permission, "start_bulk")
    try:
        # With instants for ages: the answer is about what the question was about.
        # A form writes line breaks its own way.
        given = request.POST.get("filter", "").replace("\r\n", "\n")
        text = str(operations.parse(given))
        found = told_of(request) or operations.count_bulk(actor, verb.name, text)
        if not found.count:
            told = _("No job matches: nothing was changed.")
            return go_back(request, back, told, messages.WARNING)
        asked = ask(request, actor, _question_of_all(verb, found, text), back=back)
        if asked is not None:
            return asked
        expected = None if found.is_capped else found.count
        bulk = operations.start_bulk(actor, verb.name, text, expected=expected)
    except _REFUSED as error:
        return not_done(request, back, error)
    told = _("A worker does it, 1,000 jobs at a time.")
    return go_back(request, link("bulk_one", bulk.pk), told)


def _verb(request: HttpRequest) -> Verb:
    verb = VERBS.get(request.POST.get("action", ""))
    if verb is None:
        raise Http404
    return verb


def _ids(request: HttpRequest) -> list[UUID]:
    try:
        ids = [UUID(value) for value in request.POST.getlist("job")]
    except ValueError:
        raise Http404 from None
    return list(dict.fromkeys(ids))


def _question(verb: Verb, count: int, subject: str) -> Question:
    return Question(
        title=f"{verb.of(count)}?",
        text=f"{subject} {verb.means}".strip(),
        button=verb.of(count),
        typed=str(count) if verb.is_grave or count > CLICK else None,
        is_grave=verb.is_grave,
    )


def _question_of_all(verb: Verb, found: Matched, text: str) -> Question:
    subject = _("All that match {filter}.").format(filter=text)
    carried = [("filter", text), ("expected", str(found.count))]
    if found.is_capped:
        subject = _(
            "More than {count} match {filter}: all that are there when you answer, and "
            "none that is enqueued later."
        ).format(count=f"{found.count:,}", filter=text)
        carried.append(("capped", "yes"))
    question = _question(verb, found.count, subject)
    typed = _("all") if found.is_capped else question.typed
    return replace(question, carried=tuple(carried), typed=typed)


def _replayed(request: HttpRequest, actor: Actor, job_id: UUID) -> HttpResponse:
    try:
        new_id = operations.replay_job(actor, job_id)
    except _REFUSED as error:
        return not_done(request, link("job", job_id), error)
    told = format_html(_("This is the replay of {}."), job_link(job_id))
    return go_back(request, link("job", new_id), told)


def _done(
    request: HttpRequest, actor: Actor, verb: Verb, ids: list[UUID], back: str
) -> HttpResponse:
    try:
        report = verb.run(actor, ids)
    except _REFUSED as error:
        return not_done(request, back, error)
    told, level = report_of(verb, report)
    return go_back(request, back, told, level)
