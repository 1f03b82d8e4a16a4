"""Migrate from zero, then cancel and replay in the admin; print who is on record."""

from __future__ import annotations

import json

import django
from django.test.utils import (
    setup_databases,
    setup_test_environment,
    teardown_databases,
)


def act() -> dict[str, object]:
    from django.contrib.admin.models import LogEntry  # here: after django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    from relay.models import History, Job

    call_command("check")
    call_command("makemigrations", "relay", check=True, dry_run=True, verbosity=0)
    user = get_user_model().objects.create_superuser("ada", email="ada@example.org")
    client = Client()
    client.force_login(user)
    job = Job.objects.create(task="t")
    for action in ("cancel", "replay"):
        client.post(
            "/admin/relay/job/",
            {"action": action, "_selected_action": [str(job.pk)]},
        )
    return {
        "history": list(History.objects.order_by("id").values_list("event", "actor")),
        "log": [str(entry.user_id) for entry in LogEntry.objects.all()],
        "user": str(user.pk),
        "replays": Job.objects.filter(replay_of=job.pk).count(),
    }


if __name__ == "__main__":
    django.setup()
    setup_test_environment()
    databases = setup_databases(verbosity=0, interactive=False)
    try:
        answer = act()
    finally:
        teardown_databases(databases, verbosity=0)
    print(json.dumps(answer))  # noqa: T201 - what the test reads
