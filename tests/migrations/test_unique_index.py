"""0002_job_unique_key: built beside running workers, taken back, and built again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def is_valid() -> list[tuple[bool]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indisvalid AND indisunique FROM pg_index "
            "WHERE indexrelid = to_regclass('relay_job_unique_idx')"
        )
        found: list[tuple[bool]] = cursor.fetchall()
    return found


@pytest.fixture(autouse=True)
def _latest() -> Iterator[None]:
    yield
    call_command("migrate", "relay", verbosity=0)


def test_the_index_can_be_taken_back_and_replaces_what_a_broken_build_left() -> None:
    assert is_valid() == [(True,)]

    call_command("migrate", "relay", "0001", verbosity=0)
    assert is_valid() == []

    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX relay_job_unique_idx ON relay_job (unique_key)")
    call_command("migrate", "relay", verbosity=0)
    assert is_valid() == [(True,)]
