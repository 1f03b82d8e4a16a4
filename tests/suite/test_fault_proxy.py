"""The proxy of tests.chaos does each harm, and no other, to a real PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.standalone.postgres import EmbeddedPostgres
from tests.chaos.proxy import Direction, FaultProxy
from tests.waiting import WAIT_SECONDS, until

Session = psycopg.Connection[Any]


@pytest.fixture
def direct(postgres: EmbeddedPostgres | None) -> Iterator[Session]:
    if postgres is None:
        pytest.skip("the server of DATABASE_URL may have no socket")
    with psycopg.connect(postgres.dsn(), autocommit=True) as session:
        session.execute("DROP SCHEMA IF EXISTS tests_proxy CASCADE")
        session.execute("CREATE SCHEMA tests_proxy CREATE TABLE note (number int)")
        try:
            yield session
        finally:
            session.execute("DROP SCHEMA tests_proxy CASCADE")


@pytest.fixture
def proxy(direct: Session) -> Iterator[FaultProxy]:
    folder = direct.info.host
    with FaultProxy(f"{folder}/.s.PGSQL.{direct.info.port}") as made:
        yield made


@pytest.fixture
def session(direct: Session, proxy: FaultProxy) -> Iterator[Session]:
    with connect(direct, proxy) as made:
        yield made


def connect(direct: Session, proxy: FaultProxy) -> Session:
    server = conninfo_to_dict(direct.info.dsn)
    return psycopg.connect(
        host="127.0.0.1",
        port=proxy.port,
        user=server["user"],
        dbname=server["dbname"],
        autocommit=True,
        prepare_threshold=None,
    )


def write(session: Session, number: int = 1) -> None:
    session.execute("INSERT INTO tests_proxy.note VALUES (%s)", (number,))


def write_both(session: Session) -> None:
    with session.transaction():
        write(session, 1)
        write(session, 2)
        assert session.execute("SELECT 1").fetchone() == (1,)


def write_in_pipeline(session: Session) -> None:
    with session.pipeline():
        write(session, 1)
        write(session, 2)


def written(direct: Session) -> list[int]:
    rows = direct.execute("SELECT number FROM tests_proxy.note ORDER BY number")
    return [number for (number,) in rows]


def in_background(act: Any, *arguments: Any) -> tuple[threading.Thread, list[Any]]:
    """Do it in a thread; the list is given the error that it raised, or None."""
    ends: list[Any] = []

    def run() -> None:
        try:
            act(*arguments)
        except psycopg.Error as error:
            ends.append(error)
        else:
            ends.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


def test_a_sound_proxy_passes_on_everything(direct: Session, session: Session) -> None:
    with session.cursor() as cursor:
        with cursor.copy("COPY tests_proxy.note FROM STDIN") as copy:
            for number in range(50_000):
                copy.write_row((number,))
        cursor.execute("SELECT repeat('x', 1000000)")
        long = cursor.fetchone()
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.execute("SELECT 1 / 0")
    with session.pipeline():
        write(session)

    assert long == ("x" * 1_000_000,)
    assert len(written(direct)) == 50_001


def test_a_delay_holds_up_each_way(session: Session, proxy: FaultProxy) -> None:
    proxy.delay(0.1)
    began_at = time.monotonic()

    session.execute("SELECT")

    assert time.monotonic() - began_at >= 0.2


def test_what_was_frozen_arrives_after_the_thaw(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.freeze()
    thread, ends = in_background(write, session)
    thread.join(0.1)
    meanwhile = list(ends), written(direct)

    proxy.heal()
    thread.join(WAIT_SECONDS)

    assert meanwhile == ([], [])
    assert ends == [None]
    assert written(direct) == [1]


@pytest.mark.parametrize(
    ("direction", "arrived"), [("to server", []), ("to client", [1])]
)
def test_one_direction_is_lost_and_who_lost_bytes_is_cut(
    direct: Session,
    session: Session,
    proxy: FaultProxy,
    direction: Direction,
    arrived: list[int],
) -> None:
    proxy.drop(direction)
    thread, ends = in_background(write, session)
    until(
        lambda: any(each.has_gap for each in list(proxy._sessions)),
        what="bytes are lost",
    )
    assert written(direct) == arrived
    assert ends == []

    proxy.heal()
    thread.join(WAIT_SECONDS)

    assert isinstance(ends[0], psycopg.OperationalError)
    assert written(direct) == arrived
    with connect(direct, proxy) as again:
        write(again, 2)
    assert written(direct) == [*arrived, 2]


def test_an_answer_is_torn_in_the_middle(session: Session, proxy: FaultProxy) -> None:
    proxy.tear()

    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT repeat('x', 1000000)")


def test_a_cut_ends_every_session_and_lets_in_the_next(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.cut()

    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT")
    with connect(direct, proxy) as again:
        again.execute("SELECT")


def test_a_single_statement_is_cut_off_from_the_answer_to_its_commit(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.cut_commits(1)
    session.execute("SELECT")
    session.execute("UPDATE tests_proxy.note SET number = 1")

    with pytest.raises(psycopg.OperationalError):
        write(session)

    assert written(direct) == [1]
    assert (proxy.commits_cut, proxy.commits_to_cut) == (1, 0)


def test_a_transaction_is_cut_off_from_the_answer_to_its_commit_only(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.cut_commits(1)

    with pytest.raises(psycopg.OperationalError):
        write_both(session)

    assert written(direct) == [1, 2]
    assert proxy.commits_cut == 1


def test_a_pipeline_is_cut_off_from_the_answer_to_its_commit(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.cut_commits(1)

    with pytest.raises(psycopg.OperationalError):
        write_in_pipeline(session)

    assert written(direct) == [1, 2]
    assert proxy.commits_cut == 1


def test_a_transaction_that_rolls_back_is_left_alone(
    direct: Session, session: Session, proxy: FaultProxy
) -> None:
    proxy.cut_commits(1)

    with session.transaction(force_rollback=True):
        write(session)

    assert session.execute("SELECT 1").fetchone() == (1,)
    assert (written(direct), proxy.commits_cut) == ([], 0)
