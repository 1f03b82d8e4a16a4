"""Who may look at a page, and what every answer says to the browser.

Closed by default: who has no permission of relay's is asked to log in, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_protect

from relay.dashboard.drawing import draw, link
from relay.dashboard.shared import forget
from relay.exceptions import NotAllowed, NotFound, ReadTimeout
from relay.operations import Actor

__all__ = ["HEADERS", "page"]

P = ParamSpec("P")

# Nothing but the package's own files runs or is drawn, whatever a job's texts hold.
# Source: docs/reference/dashboard.md, "What the browser is told".
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}


def page(
    *methods: str,
) -> Callable[
    [Callable[Concatenate[HttpRequest, Actor, P], HttpResponse]],
    Callable[Concatenate[HttpRequest, P], HttpResponse],
]:
    """Make a function of a request and its actor a view.

    Args:
        methods: what may be asked; GET and HEAD unless given.
    """
    allowed = methods or ("GET", "HEAD")

    def make(
        view: Callable[Concatenate[HttpRequest, Actor, P], HttpResponse],
    ) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
        # Also in projects whose middleware does not.
        protected: Callable[..., HttpResponse] = csrf_protect(view)

        @wraps(view)
        def run(
            request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            response = _answer(request, protected, allowed, args, kwargs)
            for name, value in HEADERS.items():
                response[name] = value
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return run

    return make


def _answer(
    request: HttpRequest,
    view: Callable[..., HttpResponse],
    allowed: Sequence[str],
    args: Any,
    kwargs: Any,
) -> HttpResponse:
    reason = request.POST.get("reason")
    actor = Actor.of_request(request, source="dashboard", reason=reason)
    if actor.permissions is not None and not actor.permissions:
        return _closed(request, actor)
    if request.method not in allowed:
        return HttpResponseNotAllowed(allowed)
    if request.method == "POST":
        forget()  # what others are shown is to tell of it at once
    try:
        return view(request, actor, *args, **kwargs)
    except NotAllowed as error:
        return _refusal(request, actor, 403, f"{error}.")
    except NotFound as error:
        return _refusal(request, actor, 404, f"{error}.")
    except Http404:
        return _refusal(request, actor, 404, _("There is no such page."))
    except ReadTimeout as error:
        return _refusal(request, actor, 503, f"{error}.")


def _closed(request: HttpRequest, actor: Actor) -> HttpResponse:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        text = _("{name} has none of relay's permissions, such as relay.view_job.")
        return _refusal(request, actor, 403, text.format(name=actor.name))
    # What was sent is not sent again.
    is_read = request.method in ("GET", "HEAD")
    login = redirect_to_login(request.get_full_path() if is_read else link("overview"))
    if "part" in request.GET:  # of a live region: the whole page has to go there
        return HttpResponse(status=204, headers={"HX-Redirect": login.url})
    return login


def _refusal(
    request: HttpRequest, actor: Actor, status: int, text: str
) -> HttpResponse:
    titles = {403: _("Not allowed"), 404: _("Not found"), 503: _("Too slow")}
    values = {"title": titles[status], "text": text}
    return draw(request, actor, "refusal.html", values, status=status)
