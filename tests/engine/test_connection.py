"""The engine's connections: settings, timeouts, and which errors are outages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    connections,
)
from django.test import override_settings

from relay.engine.claim import Marks, send_claim
from relay.engine.connection import EngineConnection, connect, is_outage
from tests.engine.proxy import Proxy
from tests.engine.rows import add_jobs, add_worker, states, wait_until
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

PINNED = {
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


def setting(session: psycopg.Connection[Any], name: str) -> str:
    row = session.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def test_planner_is_pinned_for_claim_and_finish_and_for_nothing_else(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    assert {name: setting(hot, name) for name in PINNED} == PINNED
    assert {setting(duty, name) for name in PINNED if name.startswith("enable")} == {
        "on"
    }
    assert setting(duty, "plan_cache_mode") == "auto"


@pytest.mark.parametrize(
    ("lease", "milliseconds"),
    [(3_000, 500), (6_000, 1_000), (30_000, 5_000), (10**6, 5_000)],
)
def test_statement_may_last_a_sixth_of_a_lease_and_five_seconds_at_most(
    lease: int, milliseconds: int
) -> None:
    with override_settings(RELAY={"LEASE": timedelta(milliseconds=lease)}):
        connection = connect("default", role="duty", name="tests")

    with connection:
        row = connection.execute(
            "SELECT setting FROM pg_settings "
            "WHERE name IN ('statement_timeout', 'lock_timeout')"
        ).fetchall()
    assert row == [(str(milliseconds),)] * 2


def test_a_lease_longer_than_a_timeout_of_the_server_connects(
    transactional_db: None,
) -> None:
    with override_settings(RELAY={"LEASE": timedelta(days=30)}):
        connection = connect("default", role="hot", name="tests")

    with connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("role", ["hot", "duty", "listen"])
def test_isolation_is_read_committed_whatever_the_alias_says(
    role: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "isolation_level", psycopg.IsolationLevel.SERIALIZABLE)
    monkeypatch.setitem(
        options, "options", "-c default_transaction_isolation=serializable"
    )

    connection = connect("default", role=role, name="tests")

    with connection, connection.transaction():
        assert setting(connection, "transaction_isolation") == "read committed"


def test_connection_carries_the_name_of_what_it_is_for() -> None:
    with connect("default", role="listen", name="keeper of x" * 10) as connection:
        name = setting(connection, "application_name")

    assert name.startswith("relay keeper of x")
    assert len(name) == 63


def test_role_of_the_alias_is_assumed(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    duty.execute('CREATE ROLE "relay tests"')
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "assume_role", "relay tests")
    try:
        with connect("default", role="duty", name="tests") as connection:
            user = connection.execute("SELECT current_user").fetchone()
    finally:
        duty.execute('DROP ROLE "relay tests"')

    assert user == ("relay tests",)


def test_behind_a_pooler_nothing_outlives_a_block(duty: EngineConnection) -> None:
    worker_id = add_worker(duty)
    with override_settings(RELAY={"TRANSACTION_POOLER": True}):
        connection = connect("default", role="hot", name="tests")

    with connection:
        with connection.block():
            inside = connection.execute("SELECT current_setting('enable_seqscan')")
            send_claim(
                connection, Marks().spans(["default"]), limit=1, worker_id=worker_id
            )
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements")

        assert inside.fetchone() == ("off",)
        assert prepared.fetchone() == (0,)
        assert setting(connection, "enable_seqscan") == "on"


def test_claims_are_prepared_once(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    for _ in range(3):
        with hot.block():
            send_claim(hot, Marks().spans(["default"]), limit=1, worker_id=worker_id)

    plans = hot.execute(
        "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
    ).fetchall()
    assert plans == [(3, 0)]


def test_block_is_undone_as_a_whole(duty: EngineConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        _insert_and_divide(duty)

    assert states(duty) == {}


@override_settings(RELAY={"LEASE": timedelta(seconds=4)})
def test_a_claim_that_is_never_ended_is_undone_when_its_lease_is_over(
    duty: EngineConnection,
) -> None:
    hot = connect("default", role="hot", name="stopped")
    if hot.info.server_version < 17_00_00:
        hot.close()
        pytest.skip("the server has no transaction_timeout")
    worker_id = add_worker(duty)
    add_jobs(duty, 1)

    with pytest.raises(psycopg.OperationalError):
        _claim_and_stand_still(hot, duty, worker_id)

    assert hot.closed
    assert states(duty) == {"queued": 1}


def _claim_and_stand_still(
    hot: EngineConnection, other: EngineConnection, worker_id: Any
) -> None:
    def is_free() -> bool:
        with other.transaction():
            found = other.execute("SELECT FROM relay_job FOR UPDATE SKIP LOCKED")
            return found.rowcount == 1

    def has_claimed() -> bool:
        # Asked of the statistics: to look at the row may lock it before the claim does.
        found = other.execute(
            "SELECT FROM pg_stat_activity WHERE pid = %s "
            "AND backend_xid IS NOT NULL AND wait_event = 'ClientRead'",
            (backend,),
        )
        return found.rowcount == 1

    backend = hot.info.backend_pid
    with hot.block():
        send_claim(hot, Marks().spans(["default"]), limit=1, worker_id=worker_id)
        until(has_claimed)
        assert not is_free()
        until(is_free)


def test_block_on_a_lost_connection_raises_once_and_logs_nothing(
    duty: EngineConnection, hot: EngineConnection, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(psycopg.OperationalError):
        _lose_within_a_block(hot, duty)
    with pytest.raises(psycopg.OperationalError), hot.block():
        pytest.fail("a block was entered on a lost connection")

    assert caplog.records == []


def _lose_within_a_block(lost: EngineConnection, other: EngineConnection) -> None:
    with lost.block():
        lost.execute("SELECT 1")
        other.execute("SELECT pg_terminate_backend(%s)", (lost.info.backend_pid,))
        lost.execute("SELECT 1").fetchone()


def _insert_and_divide(session: EngineConnection) -> None:
    with session.block():
        add_jobs_blindly(session)
        session.execute("SELECT 1 / 0")


def add_jobs_blindly(session: EngineConnection) -> None:
    session.execute(
        "INSERT INTO relay_job (id, task, args) VALUES (gen_random_uuid(), 't', '{}')"
    )


@pytest.fixture
def through_proxy(monkeypatch: pytest.MonkeyPatch) -> Any:
    options = connections["default"].get_connection_params()
    for key in ("context", "cursor_factory", "prepare_threshold"):
        options.pop(key, None)
    proxy = Proxy(options)
    values = connections["default"].settings_dict
    # A lease of 3 s makes an answer due within 1.5 s.
    with (
        monkeypatch.context() as patch,
        override_settings(RELAY={"LEASE": timedelta(seconds=3)}),
    ):
        patch.setitem(values, "HOST", "127.0.0.1")
        patch.setitem(values, "PORT", str(proxy.port))
        connection = connect("default", role="hot", name="tests")
    yield proxy, connection
    connection.close()
    proxy.close()


def test_b12_failure_012_server_that_does_not_answer_ends_the_call(
    through_proxy: tuple[Proxy, EngineConnection],
) -> None:
    proxy, connection = through_proxy
    assert connection.answer_seconds == pytest.approx(1.5)
    proxy.swallows.set()

    with pytest.raises(psycopg.OperationalError) as caught:
        connection.execute("SELECT 1")

    assert is_outage(caught.value)
    assert connection.closed


def test_failure_079_claim_whose_answer_is_swallowed_was_made_all_the_same(
    through_proxy: tuple[Proxy, EngineConnection], duty: EngineConnection
) -> None:
    proxy, connection = through_proxy
    worker_id = add_worker(duty)
    add_jobs(duty, 3)
    proxy.swallows.set()

    with pytest.raises(psycopg.OperationalError):
        _claim_in_block(connection, worker_id)

    wait_until(duty, "(SELECT count(*) = 3 FROM relay_job WHERE state = 'running')")


def _claim_in_block(connection: EngineConnection, worker_id: Any) -> None:
    with connection.block():
        send_claim(connection, Marks().spans(["default"]), limit=9, worker_id=worker_id)


def test_statement_that_takes_long_but_is_allowed_to_is_awaited(
    duty: EngineConnection, in_thread: Callable[[Callable[[], Any]], Future[Any]]
) -> None:
    duty.answer_seconds = 60.0

    slept = in_thread(lambda: duty.execute("SELECT 1 FROM pg_sleep(0.3)").fetchone())

    assert slept.result(timeout=60) == (1,)


def _wrapped(error: psycopg.Error | None, kind: type[Exception]) -> Exception:
    wrapped = kind("wrapped by Django")
    wrapped.__cause__ = error
    return wrapped


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.errors.ConnectionFailure("08006"),
        psycopg.errors.TooManyConnections("53300"),
        psycopg.errors.AdminShutdown("57P01"),
        psycopg.errors.CannotConnectNow("57P03"),
        psycopg.errors.ReadOnlySqlTransaction("25006: after a failover"),
        psycopg.InterfaceError("the connection is closed"),
        psycopg.InternalError("received 2 results from command 'COMMIT'"),
        _wrapped(psycopg.InternalError("two answers to one COMMIT"), InternalError),
        _wrapped(psycopg.errors.AdminShutdown("57P01"), OperationalError),
        _wrapped(None, InterfaceError),
    ],
    ids=repr,
)
def test_outage_is_told_from_what_is_wrong_with_a_statement(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("a handler's own"),
        psycopg.errors.QueryCanceled("57014"),
        psycopg.errors.LockNotAvailable("55P03"),
        psycopg.errors.DeadlockDetected("40P01"),
        psycopg.errors.UniqueViolation("23505"),
        psycopg.errors.ProgramLimitExceeded("54000"),
        psycopg.errors.InternalError_("XX000"),
        psycopg.InterfaceError("cursor is misused"),
        _wrapped(psycopg.errors.UniqueViolation("23505"), DatabaseError),
        DatabaseError("Django's own"),
    ],
    ids=repr,
)
def test_what_is_wrong_with_a_statement_is_no_outage(error: Exception | None) -> None:
    assert not is_outage(error)


def test_read_only_spell_of_the_server_is_an_outage(duty: EngineConnection) -> None:
    duty.execute("SET default_transaction_read_only = on")

    with pytest.raises(psycopg.Error) as caught:
        add_jobs(duty)

    assert is_outage(caught.value)
