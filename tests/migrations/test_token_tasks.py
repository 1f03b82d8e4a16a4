"""The limits of tokens and operations: none is lost, and nobody waits for them."""

from __future__ import annotations

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection

from relay.models import ApiToken, BulkOperation, Job
from relay.operations import PERMISSIONS, Actor, start_bulk
from relay.operations.rights import Rights
from tests.api.factory import ROOT, make_token
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

LIMITED = Actor(
    name="limited",
    source="api",
    permissions=PERMISSIONS,
    rights=Rights(permissions=None, tasks=("mail.*",)),
)


@pytest.mark.slow
def test_no_limit_is_lost_and_no_operation_that_has_none() -> None:
    make_token("submit", name="limited", tasks=["mail.*"])
    make_token("submit", name="free")
    make_job("failed")
    limited = start_bulk(LIMITED, "replay", "state:failed")
    free = start_bulk(ROOT, "replay", "state:failed")
    try:
        call_command("migrate", "relay", "0014", verbosity=0)
        moved = Job.objects.filter(task="relay.bulk").values_list("queue", flat=True)
        assert set(moved) == {"default"}
    finally:
        call_command("migrate", "relay", verbosity=0)

    ended = BulkOperation.objects.get(pk=limited.pk)
    assert ended.state == "failed"
    assert ended.finished_at is not None
    assert "migrated back" in str(ended.error)
    assert BulkOperation.objects.get(pk=free.pk).state == "queued"
    revoked = ApiToken.objects.filter(revoked_at__isnull=False)
    assert list(revoked.values_list("name", flat=True)) == ["limited"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["relay_token", "relay_operation"])
def test_a_dump_makes_the_migration_fail_and_no_caller_wait(table: str) -> None:
    parameters = connection.get_connection_params()
    for key in ("context", "cursor_factory"):
        parameters.pop(key, None)
    call_command("migrate", "relay", "0014", verbosity=0)
    try:
        with psycopg.connect(**parameters) as reader:
            reader.execute(f"SELECT FROM {table}")
            with pytest.raises(OperationalError, match="lock timeout"):
                call_command("migrate", "relay", verbosity=0)
    finally:
        call_command("migrate", "relay", verbosity=0)
