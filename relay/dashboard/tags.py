"""What the templates of the dashboard can say: times, spans, states, addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django import template
from django.template import Context
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from relay.dashboard.assets import asset_name
from relay.dashboard.drawing import link
from relay.dashboard.verbs import VERBS
from relay.dashboard.words import NOTHING, span
from relay.instants import aware
from relay.operations import quoted

__all__ = ["register"]

register = template.Library()

# Of a text that a job brought, so much is sent.
SHOWN_CHARACTERS: Final = 20_000

# The icon of each state of a job, worker, queue, schedule or operation.
_ICONS: Final = {
    "blocked": "blocked",
    "scheduled": "scheduled",
    "queued": "queued",
    "running": "running",
    "retrying": "retrying",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "ok": "completed",
    "fired": "completed",
    "error": "failed",
    "lost": "warning",
    "late": "warning",
    "missed": "warning",
    "warning": "warning",
    "paused": "paused",
    "quiet": "paused",
    "draining": "retrying",
    "stopped": "cancelled",
    "skipped": "cancelled",
    "waiting": "scheduled",
}
_WORDS: Final = {
    "blocked": gettext_lazy("blocked"),
    "scheduled": gettext_lazy("scheduled"),
    "queued": gettext_lazy("queued"),
    "running": gettext_lazy("running"),
    "retrying": gettext_lazy("retrying"),
    "completed": gettext_lazy("completed"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "lost": gettext_lazy("lost"),
    "late": gettext_lazy("late"),
    "warning": gettext_lazy("warning"),
    "error": gettext_lazy("error"),
    "paused": gettext_lazy("paused"),
    "quiet": gettext_lazy("quiet"),
    "draining": gettext_lazy("draining"),
    "stopped": gettext_lazy("stopped"),
    "fired": gettext_lazy("fired"),
    "missed": gettext_lazy("missed"),
    "skipped": gettext_lazy("skipped"),
    "waiting": gettext_lazy("waiting"),
}

# --- addresses -----------------------------------------------------------------------


@register.simple_tag
def asset(file: str) -> str:
    return link("asset", asset_name(file))


@register.simple_tag
def at(name: str, *args: Any, **query: Any) -> str:
    """Return the address of a page, with what of the query is not empty.

    What no address can hold, as a name that was written past relay, leads home.
    """
    try:
        return link(name, *args, query=_query({}, query))
    except NoReverseMatch:
        return link("overview")


@register.simple_tag(takes_context=True)
def here(context: Context, **changed: Any) -> str:
    """Return this page's query with some of it changed; None takes it off."""
    given = context["request"].GET
    kept = {name: given[name] for name in given if name not in ("part", "cursor")}
    return f"?{_query(kept, changed)}"


def _query(kept: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    values = {**kept, **changed}
    return urlencode({name: value for name, value in values.items() if value})


@register.simple_tag(takes_context=True)
def live(context: Context, name: str) -> SafeString:
    """Return the attributes by which a region asks for itself again.

    With the ETag of what it shows: where nothing has changed nothing is sent.
    """
    query = here(context, part=name, cursor=context["request"].GET.get("cursor"))
    return format_html(
        'id="{}" data-live data-tag="{}" hx-get="{}" hx-trigger="relay:tick" '
        'hx-swap="innerMorph"',
        name,
        context["tags"][name],
        query,
    )


# --- words ---------------------------------------------------------------------------


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="#i-{}"></use></svg>', name
    )


@register.filter
def state(value: str | None) -> SafeString:
    """Return a state as an icon and a word."""
    name = str(value or "")
    return format_html(
        '<span class="state {}">{}{}</span>',
        name if name in _ICONS else "",
        icon(_ICONS.get(name, "queued")),
        _WORDS.get(name, name),
    )


@register.filter
def number(value: Any) -> str:
    """Return a number with its digits grouped; nothing as a dash."""
    return NOTHING if value is None else f"{value:,}"


@register.filter
def counted(value: Mapping[str, Any] | None) -> str:
    """Return a count that may have ended at its cap, as "10,000+"."""
    if value is None:
        return NOTHING
    return f"{value['count']:,}{'+' if value['capped'] else ''}"


@register.filter
def oldest(queue: Mapping[str, Any]) -> str:
    """Return for how long the oldest ready job of a queue has waited, if one does."""
    return span(queue["latency"]) if queue["queued"]["count"] else NOTHING


@register.filter
def or_dash(value: Any) -> Any:
    return NOTHING if value in (None, "", [], {}) else value


@register.filter
def document(value: Any) -> str:
    """Return a document as indented JSON; a text, which may be a mask, as it is."""
    if value is None:
        return NOTHING
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, indent=2, ensure_ascii=False)
    )
    return cut(text)


@register.filter
def line(value: Any) -> str:
    """Return a document as JSON on one line, up to 120 characters."""
    if value is None:
        return NOTHING
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text)


@register.filter
def is_long(value: Any) -> bool:
    """Tell whether line() would not show all of it."""
    return value is not None and line(value).endswith("…")


def shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"


@register.filter
def cut(text: str | None) -> str:
    if text is None:
        return NOTHING
    if len(text) <= SHOWN_CHARACTERS:
        return text
    note = _("cut at {count} characters").format(count=f"{SHOWN_CHARACTERS:,}")
    return f"{text[:SHOWN_CHARACTERS]}\n… ({note})"


# --- jobs ----------------------------------------------------------------------------


@register.filter
def word(state: str) -> str:
    """Return what a state is called."""
    return str(_WORDS.get(state, state))


@register.filter
def act(action: str) -> str:
    """Return what a bulk operation does, as its button says."""
    verb = VERBS.get(action)
    return str(verb.label) if verb else action


@register.filter
def call(job: Mapping[str, Any]) -> str:
    """Return the arguments of a job on one line, as a call has them."""
    args, kwargs = job["args"], job["kwargs"]
    if not (isinstance(args, list) and isinstance(kwargs, dict)):
        return str(args)
    parts = [json.dumps(each, ensure_ascii=False) for each in args]
    parts += [f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in kwargs.items()]
    return shortened(", ".join(parts))


@register.filter
def arguments(job: Mapping[str, Any]) -> str:
    """Return the arguments of a job or schedule as a document."""
    args, kwargs = job["args"], job["kwargs"]
    if not (isinstance(args, list) and isinstance(kwargs, dict)):
        return str(args)
    return document({"args": args, "kwargs": kwargs})


@register.filter
def qualified(value: str, name: str) -> str:
    """Return a value as a part of the filter language."""
    return f"{name}:{quoted(value)}"


# --- times ---------------------------------------------------------------------------


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    return parse_datetime(value) if value else None


@register.filter
def moment(value: Any) -> SafeString | str:
    """Return a time in the server's zone; the script knows the viewer's."""
    found = _moment(value)
    if found is None:
        return NOTHING
    local = timezone.localtime(found) if timezone.is_aware(found) else found
    return format_html(
        '<time datetime="{}">{}</time>',
        found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        local.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
    )


@register.filter
def wall(value: str) -> str:
    """Return a time as the clocks of its own zone show it, with how far off UTC."""
    return value.replace("T", " ", 1)


@register.filter
def ago(value: Any) -> SafeString | str:
    """Return how long ago a time was, or in how long it is."""
    found = _moment(value)
    if found is None:
        return NOTHING
    seconds = (datetime.now(UTC) - aware(found)).total_seconds()
    text = _("{span} ago") if seconds >= 0 else _("in {span}")
    return format_html(
        '<time class="ago" datetime="{}">{}</time>',
        found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        text.format(span=span(abs(seconds))),
    )


register.filter("span", span)
