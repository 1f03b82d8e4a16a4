"""Indexes added later: taken back, and built again over what a broken build left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def is_valid(index: str) -> list[tuple[bool]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indisvalid AND indpred IS NOT NULL FROM pg_index "
            "WHERE indexrelid = to_regclass(%s)",
            [index],
        )
        found: list[tuple[bool]] = cursor.fetchall()
    return found


@pytest.fixture(autouse=True)
def _latest() -> Iterator[None]:
    yield
    call_command("migrate", "relay", verbosity=0)


@pytest.mark.parametrize(
    ("index", "table", "before"),
    [
        ("relay_job_deadline_idx", "relay_job", "0002"),
        ("relay_occurrence_open_idx", "relay_occurrence", "0004"),
        ("relay_job_tags_idx", "relay_job", "0006"),
        ("relay_job_retrying_idx", "relay_job", "0012"),
        ("relay_job_blocked_idx", "relay_job", "0013"),
    ],
)
def test_an_index_can_be_taken_back_and_replaces_what_a_broken_build_left(
    index: str, table: str, before: str
) -> None:
    assert is_valid(index) == [(True,)]

    call_command("migrate", "relay", before, verbosity=0)
    assert is_valid(index) == []

    with connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX {index} ON {table} (id)")
    call_command("migrate", "relay", verbosity=0)
    assert is_valid(index) == [(True,)]


def columns(index: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef(to_regclass(%s))", [index])
        [(text,)] = cursor.fetchall()
    return str(text).partition("(")[2].partition(")")[0]


def test_the_index_of_failed_jobs_gets_a_queue_and_a_task_and_loses_them() -> None:
    index = "relay_job_failed_idx"
    assert columns(index) == "state, id, queue, task"

    call_command("migrate", "relay", "0013", verbosity=0)
    assert columns(index) == "state, id"

    with connection.cursor() as cursor:  # what a broken build leaves
        cursor.execute("CREATE INDEX relay_job_failed_new_idx ON relay_job (id)")
    call_command("migrate", "relay", verbosity=0)
    assert columns(index) == "state, id, queue, task"
    assert is_valid("relay_job_failed_new_idx") == []
