"""The INSERT of a plain job: past Django's cursor, yet as any statement through it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import psycopg
import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.backends.postgresql.base import Cursor, DatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.test import SimpleTestCase, TransactionTestCase, override_settings
from django.test.testcases import DatabaseOperationForbidden
from django.test.utils import CaptureQueriesContext

from relay.engine.connection import EngineConnection
from relay.engine.enqueue import insert_new
from relay.ids import uuid7
from relay.models import Job
from testproject.tasks import add
from tests.aliases import alias
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

QUIET = {"NOTIFY": False}  # whose wake-up is no statement of the caller's
ARGUMENTS = '{"args": [], "kwargs": {}}'


@pytest.fixture(autouse=True)
def session(transactional_db: None) -> Iterator[None]:
    """Give each test a session in which nothing is prepared, and none after it."""
    connection.close()
    yield
    connection.close()


@contextmanager
def jobs_on(**changes: Any) -> Iterator[str]:
    """Have jobs enqueued over an alias with other settings."""
    with alias("changed", **changes) as name:
        # By hand: of an alias that it does not know the test framework opens none.
        connections[name].connect()
        with override_settings(RELAY={"DATABASE": name}):
            yield name


def ask(statement: str, *values: object, using: str = "default") -> Any:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()[0]


def prepared(using: str = "default") -> int:
    return int(ask("SELECT count(*) FROM pg_prepared_statements", using=using))


def jobs() -> int:
    return Job.objects.count()


# --- prepared, and where not ---------------------------------------------------------


def test_the_insert_is_prepared_once_in_a_session() -> None:
    for number in range(3):
        add.using(max_retries=number).enqueue(1, 2)

    assert prepared() == 1
    assert jobs() == 3


@override_settings(RELAY={"TRANSACTION_POOLER": True})
def test_failure_027_behind_a_pooler_nothing_is_prepared() -> None:
    add.enqueue(1, 2)

    assert prepared() == 0
    assert jobs() == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"DISABLE_SERVER_SIDE_CURSORS": True},
        {"OPTIONS": {"prepare_threshold": None}},
    ],
    ids=["no server-side cursors", "no preparing"],
)
def test_failure_027_an_alias_that_says_so_prepares_nothing(changes: Any) -> None:
    with jobs_on(**changes) as name:
        add.enqueue(1, 2)

        assert prepared(name) == 0
    assert jobs() == 1


@pytest.mark.parametrize("options", [{}, {"prepare_threshold": 3}], ids=str)
def test_the_session_prepares_other_statements_as_it_did(options: Any) -> None:
    with jobs_on(OPTIONS=options) as name:
        before = connections[name].connection.prepare_threshold
        add.enqueue(1, 2)

        assert connections[name].connection.prepare_threshold == before
        assert before == options.get("prepare_threshold")


def test_no_other_statement_is_prepared_because_of_it() -> None:
    with jobs_on(OPTIONS={"server_side_binding": True}) as name:
        add.enqueue(1, 2)
        for _ in range(10):
            list(Job.objects.using(name).all())

        assert prepared(name) == 1


def test_the_sessions_of_a_pool_are_used_and_given_back() -> None:
    pool = {"min_size": 1, "max_size": 1}
    # Said again: what runs jobs in this process may have set it for all aliases.
    with jobs_on(CONN_MAX_AGE=0, OPTIONS={"pool": pool}) as name:
        for _ in range(3):
            add.enqueue(1, 2)
            connections[name].close()
            connections[name].connect()

        assert prepared(name) == 1
        connections[name].close()
        connections[name].close_pool()
    assert jobs() == 3


# --- seen as any statement -----------------------------------------------------------


@override_settings(RELAY=QUIET)
def test_it_is_counted_as_one_query() -> None:
    with TransactionTestCase().assertNumQueries(1):
        add.enqueue(1, 2)


@override_settings(RELAY=QUIET)
def test_it_is_captured() -> None:
    with CaptureQueriesContext(connection) as queries:
        job = add.enqueue(1, 2)

    [query] = queries
    assert "INSERT INTO relay_job" in query["sql"]
    assert job.id.hex in query["sql"]


@override_settings(RELAY=QUIET, DEBUG=True)
def test_it_is_logged_under_debug() -> None:
    before = len(connection.queries)

    add.enqueue(1, 2)

    assert len(connection.queries) == before + 1


@override_settings(RELAY=QUIET)
def test_an_execute_wrapper_gets_it() -> None:
    seen: list[str] = []

    def wrapper(
        execute: Callable[..., Any], sql: str, values: Any, many: bool, context: Any
    ) -> Any:
        seen.append(sql)
        return execute(sql, values, many, context)

    with connection.execute_wrapper(wrapper):
        add.enqueue(1, 2)
    add.enqueue(1, 2)

    assert len(seen) == 1


def test_a_tracer_s_patch_of_the_cursor_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    real = CursorWrapper.execute

    def execute(self: Any, sql: Any, params: Any = None) -> Any:
        seen.append(sql)
        return real(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", execute)
    add.enqueue(1, 2)

    assert any("INSERT INTO relay_job" in sql for sql in seen)


def test_a_cursor_factory_of_the_project_s_gets_it() -> None:
    seen: list[Any] = []

    class Counting(Cursor):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            seen.append(query)
            return super().execute(query, *args, **options)  # type: ignore[misc]  # the stubs name no base

    with jobs_on(OPTIONS={"cursor_factory": Counting}):
        add.enqueue(1, 2)

    assert any("INSERT INTO relay_job" in query for query in seen)


def test_a_backend_that_sets_up_its_session_in_the_cursor_is_asked_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tenants(DatabaseWrapper):
        def _cursor(self, name: str | None = None) -> Any:
            cursor = super()._cursor(name)  # type: ignore[misc]  # not in the stubs
            cursor.execute("SET search_path = tenant, public")
            return cursor

    with other_schema("tenant"):
        monkeypatch.setattr(connections["default"], "__class__", Tenants)
        add.enqueue(1, 2)

        assert ask("SELECT count(*) FROM tenant.relay_job") == 1
        monkeypatch.undo()
        connection.close()


def test_a_test_case_without_databases_refuses_it() -> None:
    connection.ensure_connection()

    class Simple(SimpleTestCase): ...

    Simple.setUpClass()
    try:
        with pytest.raises(DatabaseOperationForbidden):
            add.enqueue(1, 2)
    finally:
        Simple.doClassCleanups()

    assert jobs() == 0


# --- checked as any statement --------------------------------------------------------


def test_in_a_broken_transaction_it_is_refused() -> None:
    with transaction.atomic():
        with suppress(DatabaseError), transaction.atomic(savepoint=False):
            ask("SELECT 1/0")
        with pytest.raises(TransactionManagementError):
            add.enqueue(1, 2)

    assert jobs() == 0


def test_in_a_thread_that_did_not_make_the_connection_it_is_refused() -> None:
    wrapper = connections["default"]
    wrapper.ensure_connection()
    raised: list[BaseException] = []

    def run() -> None:
        connections["default"] = wrapper
        try:
            add.enqueue(1, 2)
        except DatabaseError as error:
            raised.append(error)
        finally:
            del connections["default"]

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)

    [error] = raised
    assert "created in a thread can only be used in that same thread" in str(error)
    assert jobs() == 0


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((1000, 25, ARGUMENTS), IntegrityError),
        ((0, 2**40, ARGUMENTS), DataError),
        ((0, 25, "no JSON"), DataError),
        ((0, 25, "\x00"), DataError),
    ],
    ids=["check", "range", "json", "nul"],
)
def test_its_errors_are_django_s_and_leave_the_connection_usable(
    row: tuple[int, int, str], error: type[DatabaseError]
) -> None:
    with pytest.raises(error):
        insert_new((uuid7(), "t", "default", *row), using="default")
    add.enqueue(1, 2)

    assert jobs() == 1


def test_an_id_that_is_there_is_an_integrity_error() -> None:
    there = add.enqueue(1, 2)

    with pytest.raises(IntegrityError):
        insert_new((there.id, "t", "default", 0, 25, ARGUMENTS), using="default")


# --- what becomes of the session -----------------------------------------------------


@contextmanager
def other_schema(name: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {name}")
        cursor.execute(f"CREATE TABLE {name}.relay_job (LIKE relay_job INCLUDING ALL)")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {name} CASCADE")


def test_a_new_search_path_leads_it_to_the_other_table() -> None:
    with other_schema("other"):
        first = add.enqueue(1, 2)
        with connection.cursor() as cursor:
            cursor.execute("SET search_path = other, public")
        second = add.enqueue(1, 2)

        assert prepared() == 1
        assert ask("SELECT id FROM public.relay_job") == first.id
        assert ask("SELECT id FROM other.relay_job") == second.id
        connection.close()  # with its search_path


@pytest.mark.parametrize("is_nested", [False, True], ids=["transaction", "savepoint"])
def test_it_goes_on_after_the_rollback_of_what_prepared_it(is_nested: bool) -> None:
    class RolledBackError(Exception): ...

    with transaction.atomic() if is_nested else nullcontext():
        with suppress(RolledBackError), transaction.atomic():
            add.enqueue(1, 2)
            raise RolledBackError
        kept = [add.enqueue(3, 4), add.enqueue(5, 6)]

    assert set(Job.objects.values_list("id", flat=True)) == {job.id for job in kept}


GONE = [
    "DISCARD ALL",
    "DEALLOCATE ALL",
    "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
]


@pytest.mark.parametrize("statement", GONE, ids=["discard", "deallocate", "hidden"])
def test_it_is_prepared_anew_after_somebody_threw_it_away(statement: str) -> None:
    add.enqueue(1, 2)
    with connection.cursor() as cursor:
        cursor.execute(statement)

    add.enqueue(3, 4)
    add.enqueue(5, 6)

    assert jobs() == 3
    assert prepared() == 1


def test_thrown_away_within_a_transaction_it_fails_until_the_rollback() -> None:
    def throw_away_and_enqueue() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(GONE[-1])
            add.enqueue(3, 4)

    add.enqueue(1, 2)

    with pytest.raises(ProgrammingError):
        throw_away_and_enqueue()
    add.enqueue(5, 6)

    assert jobs() == 2
    assert prepared() == 1


def end_session(duty: psycopg.Connection[Any]) -> None:
    """Have the server close Django's session, and wait until it has."""
    pid = connection.connection.info.backend_pid
    duty.execute("SELECT pg_terminate_backend(%s)", [pid])
    until(
        lambda: (
            not duty.execute(
                "SELECT FROM pg_stat_activity WHERE pid = %s", [pid]
            ).fetchall()
        ),
        what="the session has ended",
    )


def test_a_session_that_the_server_closed_fails_once_as_ever(
    duty: EngineConnection,
) -> None:
    add.enqueue(1, 2)
    end_session(duty)

    with pytest.raises(OperationalError):
        add.enqueue(3, 4)
    connection.close_if_unusable_or_obsolete()  # as at the end of a request
    add.enqueue(5, 6)

    assert jobs() == 2


def test_a_session_that_the_server_closed_is_replaced_by_a_health_check(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add.enqueue(1, 2)
    wrapper = connections["default"]
    monkeypatch.setattr(wrapper, "health_check_enabled", True)
    monkeypatch.setattr(wrapper, "health_check_done", False)
    end_session(duty)

    add.enqueue(3, 4)

    assert jobs() == 2
    assert prepared() == 1
