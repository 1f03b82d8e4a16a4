"""Asking before an act: a page of its own, answered by the act's form sent again.

The question is the server's, so that no script and no renewal of a page skips it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from relay.dashboard.drawing import draw, link
from relay.operations import Actor, Matched

__all__ = ["Question", "ask", "go_back", "not_done", "told_of", "way_back"]

# What the question's own form adds to what was sent.
_OWN: Final = {"csrfmiddlewaretoken", "answer", "typed", "reason"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody is asked before it is done.

    Attributes:
        title: what is to be done, to how many.
        text: what that means.
        button: as the button says it: "Cancel 12 jobs".
        typed: what has to be typed, a number or a name; None where a click is enough.
        is_grave: whether nothing brings back what is gone.
        carried: what the answer is to know besides what was sent.
    """

    title: str
    text: str
    button: str
    typed: str | None = None
    is_grave: bool = False
    carried: tuple[tuple[str, str], ...] = ()


def ask(
    request: HttpRequest, actor: Actor, question: Question, *, back: str
) -> HttpResponse | None:
    """Return the page that asks; None where the request is the answer to it.

    Args:
        back: where to go instead.
    """
    wrong = None
    if request.POST.get("answer") == "yes":
        if question.typed is None or _is_same(
            request.POST.get("typed", ""), question.typed
        ):
            return None
        wrong = _("That is not {typed}. Nothing was changed.").format(
            typed=question.typed
        )
    values = {
        "title": question.title,
        "question": question,
        "carried": [*_carried(request, question)],
        "back": back,
        "wrong": wrong,
        "reason": request.POST.get("reason", ""),
    }
    return draw(request, actor, "question.html", values)


def told_of(request: HttpRequest) -> Matched | None:
    """Return how many the question that is answered here named."""
    given = request.POST.get("expected", "")
    if not (given.isdecimal() and len(given) < 10):
        return None
    return Matched(int(given), request.POST.get("capped") == "yes")


def _carried(request: HttpRequest, question: Question) -> Iterator[tuple[str, str]]:
    own = _OWN | {name for name, _value in question.carried}
    for name, given in request.POST.lists():
        if name not in own:
            yield from ((name, value) for value in given)
    yield from question.carried


def _is_same(typed: str, wanted: str) -> bool:
    if wanted.isdecimal():  # people write 1,000 and 1 000 too
        return re.sub(r"[\s.,'_]", "", typed) == wanted
    return typed.strip() == wanted


def way_back(request: HttpRequest, default: str) -> str:
    """Return the page of the dashboard that sent the form, as it says itself."""
    url = request.POST.get("back", "")
    is_own = url.startswith(link("overview")) and url_has_allowed_host_and_scheme(
        url, allowed_hosts=None
    )
    return url if is_own else default


def go_back(
    request: HttpRequest, url: str, text: str, level: int = messages.SUCCESS
) -> HttpResponse:
    """Lead to a page of the dashboard, which says what was done."""
    messages.add_message(request, level, text, fail_silently=True)
    return HttpResponseRedirect(url)


def not_done(request: HttpRequest, url: str, error: Exception) -> HttpResponse:
    """Lead to a page of the dashboard, which says why nothing was done."""
    told = _("Nothing was done: {reason}.").format(reason=error)
    return go_back(request, url, told, messages.ERROR)
