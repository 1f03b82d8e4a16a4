"""Pages out of templates, whole or one live region of them.

The templates are read by an engine of the package's own, so that a project without
templates has the dashboard too. A template of the same name in a folder of
settings.TEMPLATES, or of an app that stands before relay, takes the place of one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.contrib.messages import get_messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.backends.django import DjangoTemplates
from django.template.context import make_context
from django.urls import reverse
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import gettext_lazy

from relay.conf import get_settings
from relay.exceptions import NotAllowed, ReadTimeout
from relay.operations import Actor
from relay.queries.reading import reading_together

__all__ = ["Parts", "draw", "link"]

# What each live region shows, by its name: its template's, and its id on the page.
Parts = Mapping[str, Callable[[], Mapping[str, Any]]]

_FOLDER: Final = "relay/dashboard/"
# Seconds between two looks of a live region, as a viewer may choose. Unless they do
# it is 5, on lists 10: base.html.
_INTERVALS: Final = (2, 5, 10, 15, 60)
# Of a region what changes though nothing has: the masks of the token in its forms, and
# the ages, which the script renews.
_RESTLESS: Final = re.compile(
    r'(name="csrfmiddlewaretoken" value=")[^"]*|(<time class="ago" [^>]*>)[^<]*'
)
# Of what htmx can do only what the pages need; what was opened stays open.
_HTMX: Final = (
    '{"includeIndicatorCSS":false,"history":false,"noSwap":[204,304,"4xx","5xx"],'
    '"morphIgnore":["data-htmx-powered","open"]}'
)


@dataclass(frozen=True, slots=True)
class _Item:
    """A page in the navigation.

    Attributes:
        form: a page that belongs to it, though its address is not below.
    """

    name: str
    label: Any
    key: str | None
    permission: str
    form: str | None = None


_PAGES: Final = (
    _Item("overview", gettext_lazy("Overview"), "o", "view_job"),
    _Item("jobs", gettext_lazy("Jobs"), "j", "view_job"),
    _Item("failures", gettext_lazy("Failures"), "f", "view_job"),
    _Item("queues", gettext_lazy("Queues"), "q", "view_queue"),
    _Item("workers", gettext_lazy("Workers"), "w", "view_worker"),
    _Item(
        name="schedules",
        label=gettext_lazy("Schedules"),
        key="s",
        permission="view_schedule",
        form="new_schedule",
    ),
    _Item("bulk", gettext_lazy("Bulk"), "b", "view_bulkoperation"),
    _Item("metrics", gettext_lazy("Metrics"), "m", "view_metrics"),
    _Item("system", gettext_lazy("System"), "y", "view_metrics"),
)


@cache
def _templates() -> DjangoTemplates:
    engines: list[dict[str, Any]] = settings.TEMPLATES
    folders = [
        folder
        for each in engines
        if each["BACKEND"].endswith(".DjangoTemplates")
        for folder in each.get("DIRS", ())
    ]
    return DjangoTemplates(
        {
            "NAME": "relay",
            "DIRS": folders,
            "APP_DIRS": True,
            "OPTIONS": {
                "builtins": [
                    "django.templatetags.i18n",
                    "relay.dashboard.tags",
                ]
            },
        }
    )


def link(name: str, *args: Any, query: str = "") -> str:
    """Return the address of a page, whatever relay is mounted under."""
    path = reverse(f"relay_dashboard:{name}", args=args)
    return f"{path}?{query}" if query else path


def draw(
    request: HttpRequest,
    actor: Actor,
    template: str,
    values: Mapping[str, Any],
    *,
    parts: Parts | None = None,
    status: int = 200,
) -> HttpResponse:
    """Return a page, or with ?part= in the request one of its live regions.

    A region has an ETag of what it says: who has it already is answered 304.

    Args:
        values: what the page and all its regions know.
        parts: what makes the rest of what a region shows. One that the actor may not
            see stays empty; one that takes too long says so and leaves the others.
    """
    known = {"actor": actor, **values}
    makers = parts or {}
    wanted = request.GET.get("part", "")
    if wanted in makers:
        drawn = _drawn(request, {wanted: makers[wanted]}, known)
        return _region(request, drawn[wanted])
    drawn = _drawn(request, makers, known)
    settings = get_settings()
    context = {
        **known,
        "parts": drawn,
        "tags": {name: _tag(request, html) for name, html in drawn.items()},
        "navigation": list(_navigation(request, actor)),
        "home": link("overview"),
        "htmx_config": _HTMX,
        "intervals": _INTERVALS,
        "is_read_only": settings.read_only,
        "env": settings.dashboard.env,
        "messages": get_messages(request),
        "zone": get_current_timezone_name(),
        "now": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    return HttpResponse(_rendered(request, template, context), status=status)


def _drawn(
    request: HttpRequest, makers: Parts, known: Mapping[str, Any]
) -> dict[str, str]:
    with reading_together():
        made = {name: _made(name, make) for name, make in makers.items()}
    return {
        name: _rendered(request, template, {**known, **values}) if template else ""
        for name, (template, values) in made.items()
    }


def _made(
    name: str, make: Callable[[], Mapping[str, Any]]
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the template of a region, and what it is to show."""
    try:
        return f"parts/{name}.html", make()
    except NotAllowed:
        return None, {}
    except ReadTimeout as error:
        return "parts/error.html", {"text": f"{error}."}


def _region(request: HttpRequest, html: str) -> HttpResponse:
    tag = _tag(request, html)
    response: HttpResponse = HttpResponse(html)
    # A middleware that packs what is sent makes it a weak one.
    if request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        response = HttpResponseNotModified()
    response["ETag"] = tag
    return response


def _tag(request: HttpRequest, html: str) -> str:
    """Return the ETag of a region: of what it says, and of what its forms send."""
    said = [_RESTLESS.sub(r"\1\2", html)]
    if "csrfmiddlewaretoken" in html:
        said.append(request.META.get("CSRF_COOKIE", ""))
    digest = hashlib.sha256("\n".join(said).encode())
    return f'"{digest.hexdigest()[:32]}"'


def _rendered(request: HttpRequest, template: str, values: Mapping[str, Any]) -> str:
    found = _templates().get_template(_FOLDER + template)
    context = make_context({"request": request, **values}, request)
    # A figure with a comma in it is none to SVG, nor the value of a choice.
    context.use_l10n = False
    return str(found.template.render(context))


def _navigation(request: HttpRequest, actor: Actor) -> Iterator[Mapping[str, Any]]:
    here = request.path
    home = link("overview")
    for item in _PAGES:
        if not actor.may(item.permission):
            continue
        url = link(item.name)
        yield {
            "label": item.label,
            "key": item.key,
            "url": url,
            "is_current": here == url
            or (url != home and here.startswith(url))
            or (item.form is not None and here == link(item.form)),
        }
