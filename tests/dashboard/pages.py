"""What the tests know of the dashboard's pages."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.contrib.messages import get_messages
from django.urls import reverse

from relay.dashboard.urls import urlpatterns
from relay.ids import uuid7

__all__ = ["NAMES", "PAGES", "addresses", "given", "job_of", "said", "shown", "url"]

# Those that need no row.
PAGES = (
    *("overview", "jobs", "failures", "queues", "workers", "schedules", "bulk"),
    *("metrics", "system"),
)
NAMES = [str(pattern.name) for pattern in urlpatterns]
_GIVEN: dict[str, Any] = {"name": "default"}


def url(name: str, *args: Any, query: str = "") -> str:
    return reverse(f"relay_dashboard:{name}", args=args) + (query and f"?{query}")


def addresses() -> dict[str, str]:
    """Return an address of each view, by its name."""
    found: dict[str, str] = {}
    for pattern in urlpatterns:
        names = pattern.pattern.converters
        values = {name: _GIVEN.get(name, uuid7()) for name in names}
        name = str(pattern.name)
        found[name] = reverse(f"relay_dashboard:{name}", kwargs=values)
    return found


def shown(response: Any) -> str:
    """Return the words of a page."""
    text: str = response.content.decode()
    assert response.status_code == 200, f"{response.status_code}: {text[:2_000]}"
    return re.sub(r"\s+", " ", text)


def said(response: Any) -> str:
    """Return what an act said, before a page shows it."""
    assert response.status_code == 302, response.content.decode()
    return " ".join(str(each) for each in get_messages(response.wsgi_request))


def job_of(response: Any) -> UUID:
    """Return the job to whose page an act led."""
    return UUID(response["Location"].rstrip("/").rpartition("/")[2])


def given(answer: Any) -> dict[str, Any]:
    """Return what a form holds, as a browser would send it."""
    form = answer.context["form"]
    values = {name: form[name].value() for name in form.fields}
    return {name: "" if value is None else value for name, value in values.items()}
