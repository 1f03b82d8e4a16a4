"""All addresses that a project with relay has, found in its URL conf, and people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from relay.operations import PERMISSIONS

__all__ = ["browser_of", "content_of", "filled", "held", "routes"]

_HOLE = re.compile(r"\(\?P<(\w+)>[^)]*\)|<(?:\w+:)?(\w+)>")
# Of the admin, what is Django's own: its index, its login, its words in JavaScript.
_OTHERS = re.compile(r"admin/(?!relay/)")


def routes() -> list[str]:
    """Return every address of relay's, with <names> where something has to stand."""
    found = (_plain(text) for text in _below(get_resolver().url_patterns, ""))
    return sorted({text for text in found if not _OTHERS.match(text)})


def _below(patterns: Iterable[URLPattern | URLResolver], prefix: str) -> Iterator[str]:
    for each in patterns:
        text = prefix + str(each.pattern).removeprefix("^")
        if isinstance(each, URLResolver):
            yield from _below(each.url_patterns, text)
        else:
            yield text


def _plain(text: str) -> str:
    text = text.removesuffix("$").removesuffix("\\Z").replace("(?:/.*)?", "/nothing")
    text = text.replace("/?", "").replace("\\.", ".")
    return _HOLE.sub(lambda hole: f"<{hole[1] or hole[2]}>", text)


def filled(route: str, rows: Mapping[str, Any]) -> str:
    """Return the address of a row: rows by what stands before its <name>."""
    path = ""
    for part in f"/{route}".split("<"):
        name, closed, rest = part.partition(">")
        path += f"{_row(path, name, rows)}{rest}" if closed else name
    return path


def _row(before: str, name: str, rows: Mapping[str, Any]) -> Any:
    kind = before.rstrip("/").rpartition("/")[2]
    return rows.get(kind, rows.get(name, "nothing"))


def browser_of(*permissions: str, name: str = "ada", **values: Any) -> Client:
    """Return the browser of a user with some of relay's permissions."""
    assert set(permissions) <= PERMISSIONS
    user = User.objects.create_user(name, is_staff=True, **values)
    user.user_permissions.set(
        Permission.objects.filter(
            content_type__app_label="relay", codename__in=permissions
        )
    )
    client = Client()
    client.force_login(user)
    return client


def content_of(response: Any) -> str:
    """Return all that an answer tells: body and headers."""
    body = b"".join(response) if response.streaming else response.content
    return f"{response.headers}\n{body.decode(errors='replace')}"


def held() -> dict[str, str]:
    """Return what each of relay's tables holds, but for when tokens were used."""
    found: dict[str, str] = {}
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        for name in sorted(each for each in names if each.startswith("relay_")):
            cursor.execute(
                f"SELECT md5(coalesce(jsonb_agg(to_jsonb(t) - 'last_used_at' "
                f"ORDER BY t::text)::text, '')) FROM {name} AS t"
            )
            found[name] = str(cursor.fetchone())
    return found
