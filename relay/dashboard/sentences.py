"""Why a job does not run, in the viewer's language."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from relay.dashboard.tags import moment
from relay.queries.reasons import Reason, Sentence

__all__ = ["said"]


def said(reason: Reason) -> Mapping[str, Any]:
    """Return a reason with its texts as a page shows them."""
    return {
        "cause": reason.cause,
        "summary": _say(reason.summary),
        "remedy": _say(reason.remedy),
    }


def _say(sentence: Sentence) -> SafeString:
    text = gettext(sentence.text)
    if not sentence.values:
        return escape(text)
    values = {name: _shown(value) for name, value in sentence.values.items()}
    return format_html(text, **values)


def _shown(value: Any) -> Any:
    if isinstance(value, Sentence):
        return _say(value)
    if isinstance(value, datetime):
        return moment(value)
    return f"{value:,}" if isinstance(value, int) else value
