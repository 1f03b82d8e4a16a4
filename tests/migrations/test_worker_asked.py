"""The columns of relay_worker: leases are not kept waiting for them."""

from __future__ import annotations

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def has_columns() -> bool:
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, "relay_worker")
    return "asked_at" in {column.name for column in columns}


@pytest.mark.slow
def test_a_long_reader_makes_the_migration_fail_and_not_the_renewals_wait() -> None:
    parameters = connection.get_connection_params()
    for key in ("context", "cursor_factory"):
        parameters.pop(key, None)
    call_command("migrate", "relay", "0008", verbosity=0)
    try:
        with psycopg.connect(**parameters) as reader:
            reader.execute("SELECT FROM relay_worker")
            with pytest.raises(OperationalError, match="lock timeout"):
                call_command("migrate", "relay", "0009", verbosity=0)
            assert not has_columns()
    finally:
        call_command("migrate", "relay", verbosity=0)

    assert has_columns()
