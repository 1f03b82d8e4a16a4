"""What is read from the rows of jobs that are waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from relay.engine.connection import EngineConnection
from relay.load.waiting import Ended, follow, is_served
from tests.engine.rows import add_jobs, add_worker
from tests.worker.harness import Database

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def ended_jobs(
    database: Database, count: int, *, state: str = "completed", seconds: float = 3
) -> list[UUID]:
    """Insert jobs enqueued at noon, started a second later, and ended then."""
    return add_jobs(
        database.session,
        count,
        state=state,
        created_at=NOON,
        started_at=None if state == "cancelled" else NOON + timedelta(seconds=1),
        finished_at=NOON + timedelta(seconds=seconds),
    )


def followed(
    ids: list[UUID], *, seconds: float | None = None, is_told_to_end: bool = False
) -> tuple[Ended, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    ended = follow(
        bytearray().join(each.bytes for each in ids),
        using="default",
        seconds=seconds,
        watch=lambda done, all_jobs: told.append((done, all_jobs)),
        is_told_to_end=lambda: is_told_to_end,
    )
    return ended, told


def test_times_are_those_of_the_rows(database: Database) -> None:
    ids = [*ended_jobs(database, 3), *ended_jobs(database, 1, seconds=8)]

    ended, told = followed(ids)

    assert ended.states == {"completed": 4}
    assert list(ended.to_start) == [1, 1, 1, 1]
    assert sorted(ended.to_end) == [3, 3, 3, 8]
    assert ended.per_second == pytest.approx(4 / 8)
    assert (ended.gone, ended.unended, ended.is_interrupted) == (0, 0, False)
    assert told == [(4, 4)]


def test_jobs_end_in_other_ways_too_or_are_gone(database: Database) -> None:
    ids = [
        *ended_jobs(database, 2, state="failed"),
        *ended_jobs(database, 1, state="cancelled"),
        uuid4(),
    ]

    ended, _ = followed(ids)

    assert ended.states == {"failed": 2, "cancelled": 1}
    assert len(ended.to_start) == 2
    assert ended.gone == 1


def test_of_no_jobs_nothing_is_read(
    database: Database, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        ended, _ = followed([])

    assert ended.per_second is None


def test_a_statement_reads_a_thousand_rows(
    database: Database, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    ids = ended_jobs(database, 2_500)

    with django_assert_num_queries(3):
        ended, told = followed(ids)

    assert len(ended.to_end) == 2_500
    assert told == [(1_000, 2_500), (2_000, 2_500), (2_500, 2_500)]


def test_what_ended_behind_jobs_that_go_on_is_found_at_the_end(
    database: Database,
) -> None:
    later = add_jobs(database.session, 1_200, state="retrying")
    ids = [*later, *ended_jobs(database, 1_500), *add_jobs(database.session, 7)]

    ended, _ = followed(ids, is_told_to_end=True)

    assert ended.states == {"completed": 1_500}
    assert ended.unended == 1_207
    assert ended.is_interrupted


def test_a_wait_with_a_limit_ends_by_itself(database: Database) -> None:
    ids = [*add_jobs(database.session, 1), *ended_jobs(database, 1)]

    ended, _ = followed(ids, seconds=0.05)

    assert (ended.states, ended.unended) == ({"completed": 1}, 1)
    assert not ended.is_interrupted


def test_a_wait_outlives_its_connection(database: Database) -> None:
    ids = [*ended_jobs(database, 1), *add_jobs(database.session, 1)]
    told = 0

    def watch(done: int, all_jobs: int) -> None:
        nonlocal told
        told += 1
        if told == 1:
            database.ask("SELECT pg_terminate_backend(%s, 60000)", backend())
        if told == 3:
            database.session.execute("UPDATE relay_job SET finished_at = now()")

    ended = follow(
        bytearray().join(each.bytes for each in ids),
        using="default",
        watch=watch,
        is_told_to_end=lambda: False,
    )

    assert ended.states.total() == 2
    assert told > 3


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_a_queue_is_served_while_a_worker_that_lives_names_it(
    database: Database, duty: EngineConnection
) -> None:
    assert not is_served("default", using="default")
    add_worker(duty, state="draining")
    add_worker(duty, lease_for=timedelta(seconds=-1))
    assert not is_served("default", using="default")

    add_worker(duty)

    assert is_served("default", using="default")
    assert not is_served("mail", using="default")
