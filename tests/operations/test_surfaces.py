"""Each act through each surface: refused without its permission, else done on record.

The surfaces are asked as people and clients ask them, in this process.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any
from urllib.request import Request

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from relay import operations
from relay.admin import job_acts
from relay.cli import session
from relay.cli.console import make_parser
from relay.cli.errors import NotAllowedError
from relay.cli.http import Http
from relay.cli.remote import Remote
from relay.models import Audit
from relay.operations import PERMISSIONS
from tests.operations.surfaces import ACTS, SURFACES, Asked
from tests.operations.test_parity import LEFT_OUT

pytestmark = pytest.mark.django_db

# A list of calls is what clients send; a form or a line is of one.
OF_CLIENTS = {"enqueue_jobs"}
BY_SURFACE = [(surface, name) for surface in SURFACES for name in SURFACES[surface]]


def test_every_act_and_every_surface_that_offers_it_stands_in_the_tables() -> None:
    assert ACTS.keys() == operations.all_operations().keys()
    for surface, asked in SURFACES.items():
        left_out = LEFT_OUT[surface.partition(" ")[0]]
        offered = ACTS.keys() - left_out - (OF_CLIENTS if surface != "api" else set())
        assert asked.keys() == offered, surface


@pytest.mark.parametrize("name", ACTS)
def test_an_act_asks_for_the_permission_that_its_document_says(name: str) -> None:
    declared = operations.all_operations()[name]

    assert (declared.permission, declared.subject) == (
        ACTS[name].permission,
        ACTS[name].subject,
    )


# --- how each surface is asked -------------------------------------------------------

Ask = Callable[[Client, Asked], bool]


def client_of(name: str, permissions: set[str]) -> Client:
    """Return the browser of somebody with these permissions."""
    user = User.objects.create_user(name, is_staff=True)
    found = Permission.objects.filter(
        content_type__app_label="relay", codename__in=permissions
    )
    assert found.count() == len(permissions)
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


def by_form(prefix: str, client: Client, asked: Asked) -> bool:
    answer = client.post(f"{prefix}{asked.where}", asked.what)
    assert answer.status_code in (200, 302, 403)
    return answer.status_code != 403


def by_api(client: Client, asked: Asked) -> bool:
    method, path = asked.where.split(" ")
    answer = client.generic(
        method, f"/v1/{path}", json.dumps(asked.what), content_type="application/json"
    )
    assert answer.status_code in (200, 201, 202, 204, 403), answer.content
    return answer.status_code != 403


class ByClient(Http):
    """A server that is this process, and a session in place of a token."""

    def __init__(self, client: Client) -> None:
        super().__init__("http://testserver")
        self._client = client

    def _answered(
        self, request: Request, seconds: float
    ) -> tuple[int, bytes, str | None]:
        body = request.data
        assert body is None or isinstance(body, bytes)
        answer = self._client.generic(
            request.get_method(),
            request.full_url.removeprefix("http://testserver"),
            body or b"",
            content_type="application/json",
        )
        return answer.status_code, answer.content, None


def by_line(client: Client, asked: Asked) -> bool:
    options = make_parser().parse_args(shlex.split(asked.where))
    try:
        session.run(
            options,
            connect=lambda: Remote(ByClient(client)),
            out=StringIO(),
            err=StringIO(),
            colour=False,
        )
    except NotAllowedError:
        return False
    return True


def in_process(client: Client, asked: Asked) -> bool:
    del client  # who has the database may do everything
    words = shlex.split(asked.where)
    try:
        call_command("relay", *words, stdout=StringIO(), stderr=StringIO())
    except CommandError as error:
        if error.returncode != NotAllowedError.exit_code:
            raise
        return False
    return True


ASK: Mapping[str, Ask] = {
    "dashboard": functools.partial(by_form, "/dashboard/"),
    "admin": functools.partial(by_form, "/admin/relay/"),
    "api": by_api,
    "cli": by_line,
    "cli in process": in_process,
}
SOURCES = {"cli": "api", "cli in process": "cli"}


def about(asked: Asked, key: str) -> Asked:
    """Return what is asked, of the row with this key."""
    filled = json.loads(json.dumps(asked.what).replace("{key}", key))
    return Asked(asked.where.replace("{key}", key), filled, asked.also)


# --- what they have changed ----------------------------------------------------------


@functools.cache
def tables() -> tuple[str, ...]:
    with connection.cursor() as cursor:
        found = connection.introspection.table_names(cursor)
    own = sorted(each for each in found if each.startswith("relay_"))
    return (*own, "django_admin_log")


def stored() -> dict[str, str]:
    """Return what relay's tables hold, and the log of the admin."""
    rows = "md5(coalesce(string_agg(t::text, '' ORDER BY t::text), ''))"
    each = (f"SELECT '{table}', {rows} FROM {table} AS t" for table in tables())
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each))
        return dict(cursor.fetchall())


@pytest.mark.parametrize(("surface", "name"), BY_SURFACE)
def test_it_is_refused_without_its_permission_and_done_with_it(
    surface: str, name: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr(job_acts, "MOST_AT_ONCE", 0 if name == "start_bulk" else 100)
    act, asked, ask = ACTS[name], SURFACES[surface][name], ASK[surface]
    key = act.make()
    asked = about(asked, key)
    before = stored()

    with_all_others = client_of("eve", set(PERMISSIONS - {act.permission}))
    if surface == "cli in process":
        settings.RELAY = {"READ_ONLY": True}
    is_refused = not ask(with_all_others, asked)
    after_refusal = stored()
    settings.RELAY = {}
    needed = {act.permission, *act.also, *asked.also}
    is_done = ask(client_of("ada", needed), asked)
    changed = {table for table, rows in stored().items() if rows != before[table]}

    assert is_refused or (surface, name) == ("admin", "start_bulk")  # as a message
    assert after_refusal == before
    assert is_done
    assert changed - {"relay_audit", "django_admin_log"} or name == "mark"
    [row] = Audit.objects.exclude(actor="root")  # who made what it is done to
    source = SOURCES.get(surface, surface)
    assert (row.operation, row.actor, row.source, row.subject) == (
        name,
        "ada",
        source,
        act.subject,
    )
    assert act.target is None or row.target == act.target.replace("{key}", key)
