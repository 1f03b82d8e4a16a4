"""How long every list takes at millions of jobs, and how many statements it needs.

    python -m bench.lists --rows 2000000 --runs 5

Each address is asked for by Django's test client, as a superuser, over all surfaces:
REST, the dashboard, the admin. Works in a database of its own, dropped at the end.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from statistics import median
from typing import Any, Final

import django

NAME: Final = "relay_bench_lists"

# Of the rows a quarter is scheduled, all of it for one instant, 5 % are queued and 5 %
# failed; the rest completed. Ids of version 7, in the order of n.
FILL: Final = """
INSERT INTO relay_job (id, task, queue, priority, state, created_at, run_at, started_at,
                       finished_at, error_class, error_message, args, result)
SELECT ('01900000-' || lpad(to_hex(n / 65536), 4, '0') || '-7' ||
        lpad(to_hex(n %% 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       'shop.task_' || n %% 40, 'queue_' || n %% 7, n %% 5,
       state, at, CASE state WHEN 'scheduled' THEN '2099-01-01' ELSE at END,
       CASE WHEN state IN ('failed', 'completed') THEN at END,
       CASE WHEN state IN ('failed', 'completed') THEN at + interval '2 s' END,
       CASE state WHEN 'failed' THEN 'ConnectionError' END,
       CASE state WHEN 'failed' THEN 'no answer from host ' || n %% 30 END,
       jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{}'::jsonb),
       CASE state WHEN 'completed' THEN '{"sent": true}'::jsonb END
FROM (
    SELECT n, now() - interval '30 days'
              + n * (interval '30 days' / (%(rows)s + 1)) AS at,
           CASE WHEN n %% 20 < 5 THEN 'scheduled' WHEN n %% 20 = 5 THEN 'queued'
                WHEN n %% 20 = 6 THEN 'failed' ELSE 'completed' END AS state
    FROM generate_series(1, %(rows)s) AS n
) AS made
"""
_STATES: Final = (
    *("queued", "running", "scheduled", "retrying", "completed", "failed"),
    *("cancelled", "blocked"),
)
_JOBS: Final = (
    "",
    *(f"?state={state}" for state in _STATES),
    "?queue=queue_3",
    "?state=failed&queue=queue_3",
    "?state=failed&queue=nothing",
)
_FILTERED: Final = ("?task=shop.task_7", "?state=failed&error=ConnectionError")
ADDRESSES: Final = (
    *(f"/v1/jobs{query}" for query in (*_JOBS, *_FILTERED)),
    *("/v1/jobs/count?state=failed", "/v1/failures", "/v1/queues", "/v1/workers"),
    *("/v1/schedules", "/v1/bulk", "/v1/audit", "/v1/tasks", "/v1/stats"),
    *(f"/dashboard/jobs/{query}" for query in (*_JOBS, *_FILTERED)),
    *(f"/dashboard/{page}" for page in ("", "failures/", "queues/", "workers/")),
    *(f"/dashboard/{page}" for page in ("schedules/", "bulk/", "metrics/", "system/")),
    *(f"/admin/relay/job/{query}" for query in _JOBS),
    *(f"/admin/relay/{name}/" for name in ("queue", "worker", "schedule")),
    *("/admin/relay/occurrence/", "/admin/relay/bulkoperation/"),
    "/admin/relay/audit/",
)


@contextmanager
def database(rows: int) -> Iterator[None]:
    """Make a database with so many jobs, some workers, queues and a schedule."""
    from django.conf import settings
    from django.db import connection

    from relay.standalone.postgres import serve

    server = serve(settings.POSTGRES_ROOT)
    settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = NAME
    old = connection.settings_dict["NAME"]
    connection.settings_dict["TEST"]["NAME"] = NAME
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        fill(rows)
        yield
    finally:
        connection.creation.destroy_test_db(old, verbosity=0)
        del server


def fill(rows: int) -> None:
    from django.db import connection
    from django.utils import timezone

    from relay.models import Job, Queue, Schedule, Worker

    with connection.cursor() as cursor:
        cursor.execute(FILL, {"rows": rows})
    now = timezone.now()
    for number in range(4):
        worker = Worker.objects.create(
            name=f"worker-{number}",
            host="bench",
            pid=number,
            queues=[f"queue_{place}" for place in range(7)],
            concurrency=10,
            version="0",
            lease_expires_at=now + timedelta(days=1),
        )
        for place in range(10):
            Job.objects.create(
                task="shop.running",
                queue=f"queue_{place % 7}",
                state="running",
                worker_id=worker.pk,
                attempt=1,
                started_at=now,
            )
    Queue.objects.bulk_create(Queue(name=f"queue_{place}") for place in range(7))
    Schedule.objects.create(name="nightly", task="shop.task_1", cron="0 3 * * *")
    for _ in range(20):
        Job.objects.create(
            task="shop.again",
            state="retrying",
            run_at=now + timedelta(hours=1),
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE relay_job")


def measure(client: Any, address: str, runs: int) -> tuple[int, float, float, int]:
    """Return the status, the median and the worst milliseconds, and the statements."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    taken: list[float] = []
    with CaptureQueriesContext(connection) as captured:
        status = client.get(address).status_code
    asked = [
        each for each in captured if each["sql"].lstrip().startswith(("SELECT", "WITH"))
    ]
    for _ in range(runs):
        begun_at = time.perf_counter()
        client.get(address)
        taken.append((time.perf_counter() - begun_at) * 1_000)
    return status, median(taken), max(taken), len(asked)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    from django.contrib.auth.models import User
    from django.test import Client

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with database(options.rows):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create_superuser("ada"))
        print(f"{'median ms':>9} {'worst':>7} {'statements':>10}  address")  # noqa: T201 - a command's output
        for address in ADDRESSES:
            status, middle, worst, count = measure(client, address, options.runs)
            note = "" if status == 200 else f"  ({status})"
            print(f"{middle:9.1f} {worst:7.1f} {count:10}  {address}{note}")  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
