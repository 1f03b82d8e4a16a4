"""Migrated back, what was for some tasks alone is not for all of them."""

from __future__ import annotations

import pytest
from django.core.management import call_command

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
