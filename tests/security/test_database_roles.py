"""The database's own walls: what docs/howto/database-roles.md grants is enough."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction

from relay import operations, queries
from relay.engine.connection import connect
from relay.models import Audit, Job
from relay.operations import Actor, parse
from relay.testing import drain
from testproject.tasks import add
from tests.docs.pages import ROOT, blocks
from tests.security.rows import make_rows

pytestmark = pytest.mark.django_db

PAGE = ROOT / "docs" / "howto" / "database-roles.md"
ADA = Actor(name="ada", source="dashboard")
SECRET = "c4n4ry-of-nobody"


def granting() -> str:
    """Return the statements of the page, for roles that nobody has."""
    [text] = [each.text for each in blocks(PAGE) if "CREATE ROLE" in each.text]
    return re.sub(r"\bshop_(web|worker)\b", rf"shop_\1_{os.getpid()}", text)


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    """Run with the rights of a role that is gone with the test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute(granting())
        cursor.execute(f"SET LOCAL ROLE {role}_{os.getpid()}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE")


def is_refused(statement: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as error:
        return isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege)
    return False


def test_the_page_speaks_of_every_table() -> None:
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)

    tables = {name for name in names if name.startswith("relay_")}
    assert tables <= set(re.findall(r"\w+", granting()))


def test_the_webs_role_looks_and_acts_and_changes_no_record() -> None:
    make_rows("x")

    with acting_as("shop_web"):
        job = operations.enqueue_job(ADA, "testproject.tasks.add", [1, 2])
        operations.cancel_job(ADA, job.id)
        operations.delete_job(ADA, job.id)
        operations.pause_queue(ADA, "default")
        operations.start_bulk(ADA, "retry", "state:failed")
        token = operations.create_token(ADA, "mine", scopes=["read"])
        operations.revoke_token(ADA, token.token.pk)
        seen = queries.list_jobs(ADA, parse("state:failed"))
        queries.list_audit(ADA)
        ready = queries.readiness()
        refused = [
            *("UPDATE relay_audit SET actor = 'x'", "DELETE FROM relay_audit"),
            *("TRUNCATE relay_audit", "DROP TABLE relay_job"),
            *("DELETE FROM relay_token", "CREATE TABLE relay_x (id int)"),
            "ALTER TABLE relay_job ADD x int",
        ]
        assert [each for each in refused if not is_refused(each)] == []

    assert seen["results"]
    assert ready["status"] == "ok"
    assert Audit.objects.filter(actor="ada").count() == 7


def test_the_workers_role_runs_jobs_and_sees_neither_tokens_nor_the_record() -> None:
    with acting_as("shop_worker"):
        job = add.enqueue(1, 2)
        drained = drain()
        refused = [
            *("SELECT * FROM relay_token", "SELECT * FROM relay_audit"),
            *("INSERT INTO relay_audit DEFAULT VALUES", "DROP TABLE relay_job"),
        ]
        assert [each for each in refused if not is_refused(each)] == []

    assert drained.completed == 1
    assert Job.objects.get(pk=job.id).state == "completed"


@pytest.mark.parametrize("how", ["django", "engine"])
def test_x34_a_connection_that_fails_tells_no_password(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = {"host": "127.0.0.1", "port": "1", "user": "shop", "password": SECRET}
    wrapper = connections["default"].copy()
    given: dict[str, Any] = {**wrapper.get_connection_params(), **away}
    monkeypatch.setattr(type(wrapper), "get_connection_params", lambda _: dict(given))

    ways: dict[str, Callable[[], object]] = {
        "django": wrapper.connect,
        "engine": lambda: connect("default", role="duty", name="test"),
    }

    with pytest.raises((DatabaseError, psycopg.OperationalError)) as caught:
        ways[how]()

    chain: BaseException | None = caught.value
    while chain is not None:
        assert SECRET not in f"{chain!s}{chain!r}"
        chain = chain.__cause__
