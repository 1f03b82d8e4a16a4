"""Open every page of relay's admin, and act through each kind; print what came."""

from __future__ import annotations

import json
from typing import Any

import django
from django.test.utils import (
    setup_databases,
    setup_test_environment,
    teardown_databases,
)

HOSTILE = "<img src=x onerror=alert(1)>"


def make_rows() -> dict[str, Any]:
    from django.utils import timezone  # here: after django.setup()

    from relay.models import (
        ApiToken,
        Audit,
        BulkOperation,
        Job,
        Occurrence,
        Queue,
        Schedule,
        Worker,
    )

    now = timezone.now()
    schedule = Schedule.objects.create(name="nightly", task="t", cron="0 7 * * *")
    return {
        "job": Job.objects.create(task=HOSTILE, args={"args": [HOSTILE], "kwargs": {}}),
        "queue": Queue.objects.create(name="mail"),
        "worker": Worker.objects.create(
            name=HOSTILE,
            host="h",
            pid=1,
            queues=["mail"],
            concurrency=1,
            version="0",
            lease_expires_at=now,
        ),
        "schedule": schedule,
        "occurrence": Occurrence.objects.create(schedule=schedule, due_at=now),
        "bulkoperation": BulkOperation.objects.create(
            action="retry", filter=HOSTILE, actor="ada", source="api"
        ),
        "apitoken": ApiToken.objects.create(
            name=HOSTILE, prefix="rly_123456", digest=b"1", scopes=["read"]
        ),
        "audit": Audit.objects.create(
            operation="pause_queue", subject="queue", target="mail", actor=HOSTILE
        ),
    }


def visit() -> dict[str, Any]:
    from django.contrib import admin  # here: after django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    from relay.models import Job, Queue, Schedule

    call_command("check")
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ada"))
    rows = make_rows()
    job = rows["job"]
    ended = Job.objects.create(task="t", state="failed")
    pages = [f"job/{job.pk}/edit/", f"job/{ended.pk}/replay/", "job/add/"]
    pages += [f"job/{ended.pk}/delete/", "queue/mail/purge/", "schedule/add/"]
    pages += ["apitoken/add/", "queue/mail/weigh/"]
    for model, row in rows.items():
        pages += [f"{model}/", f"{model}/{row.pk}/change/"]
    seen = {page: client.get(f"/admin/relay/{page}") for page in pages}

    def post(page: str, **values: Any) -> str:
        response = client.post(f"/admin/relay/{page}", values, follow=True)
        return str(response.content.decode())

    text = post("job/", action="cancel", _selected_action=[str(job.pk)])
    text += post("queue/mail/act/", action="pause")
    text += post("job/add/", task="app.new", args="[1]", queue="mail")
    made = Job.objects.get(task="app.new")
    text += post(f"job/{made.pk}/edit/", args="[2]", queue="mail")
    text += post("job/", action="delete", _selected_action=[str(ended.pk)])
    post("schedule/add/", name="s", task="t", cron="* * * * *", args="{}", **SCHEDULE)
    token = {"name": "ci", "scopes": ["read"], "expires_in": "9"}
    return {
        "is_unfold": all(
            any(base.__module__.startswith("unfold.") for base in type(page).__mro__)
            for model, page in admin.site._registry.items()
            if model._meta.app_label == "relay"
        ),
        "statuses": {page: response.status_code for page, response in seen.items()},
        "hostile": [p for p, r in seen.items() if HOSTILE in r.content.decode()]
        + ["posts"] * (HOSTILE in text),
        "unfold_pages": sum("unfold" in r.content.decode() for r in seen.values()),
        "job": Job.objects.get(pk=job.pk).state,
        "paused": Queue.objects.get().paused_at is not None,
        "edited": Job.objects.get(pk=made.pk).args,
        "asks": "Delete 1 job" in text,
        "buttons": 'name="action" value="cancel"'
        in seen[f"job/{job.pk}/change/"].content.decode(),
        "suggests": "relay-tasks" in seen["job/add/"].content.decode(),
        "secret": 'value="rly_' in post("apitoken/add/", **token),
        "schedules": Schedule.objects.count(),
    }


SCHEDULE = {
    "timezone": "UTC",
    "overlap": "allow",
    "catch_up": "latest",
    "catch_up_window_ms": "1 00:00:00",
    "enabled": "on",
}

if __name__ == "__main__":
    django.setup()
    setup_test_environment()
    databases = setup_databases(verbosity=0, interactive=False)
    try:
        answer = visit()
    finally:
        teardown_databases(databases, verbosity=0)
    print(json.dumps(answer))  # noqa: T201 - what the test reads
