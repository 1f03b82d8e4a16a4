"""How long it takes to ask for an act on very many jobs, and to do it.

    python -m bench.bulk_act --jobs 100000

Asked for by Django's test client as a superuser, over the dashboard (the question, then
its answer) and over REST; done by one process. Works in a database of its own, dropped
at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, Final

import django

from bench.lists import database

# Ids of version 7, in the order of n; beside the failed ones as many others.
FILL: Final = """
INSERT INTO relay_job (id, task, queue, state, created_at, finished_at, error_class,
                       error_message, args)
SELECT ('01900000-' || lpad(to_hex(n / 65536), 4, '0') || '-7' ||
        lpad(to_hex(n %% 4096), 3, '0') || '-9000-' || lpad(to_hex(n), 12, '0'))::uuid,
       'shop.mail', 'mail', CASE WHEN n %% 2 = 0 THEN 'failed' ELSE 'completed' END,
       now() - interval '1 day', now() - interval '1 hour',
       CASE WHEN n %% 2 = 0 THEN 'ConnectionError' END,
       CASE WHEN n %% 2 = 0 THEN 'no answer from the mail server' END,
       '{"args": [1], "kwargs": {}}'
FROM generate_series(1, 2 * %(jobs)s) AS n
"""
FILTER: Final = "state:failed task:shop.mail error:ConnectionError"


@contextmanager
def failed(jobs: int) -> Iterator[None]:
    from django.db import connection

    with database(1):
        with connection.cursor() as cursor:
            cursor.execute(FILL, {"jobs": jobs})
            cursor.execute("VACUUM ANALYZE relay_job")
        yield


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return what it returns, and its milliseconds."""
    begun_at = time.perf_counter()
    found = run()
    return found, (time.perf_counter() - begun_at) * 1_000


def ask(client: Any, runs: int) -> dict[str, list[float]]:
    """Ask for the act over each surface so often; return the milliseconds of each."""
    taken: dict[str, list[float]] = {}
    form = {"action": "retry", "filter": FILTER}
    body = {"action": "retry", "filter": FILTER}
    for _ in range(runs):
        page, took = timed(lambda: client.post("/dashboard/jobs/all/", form))
        taken.setdefault("dashboard, the question", []).append(took)
        hidden = r'name="(filter|expected|capped)" value="([^"]*)"'
        carried = dict(re.findall(hidden, page.text))
        answer = {**form, **carried, "answer": "yes", "typed": carried["expected"]}
        done, took = timed(partial(client.post, "/dashboard/jobs/all/", answer))
        assert done.status_code == 302, done.status_code  # noqa: S101 - a measurement of nothing else
        taken.setdefault("dashboard, its answer", []).append(took)
        done, took = timed(
            lambda: client.post("/v1/jobs/bulk", body, content_type="application/json")
        )
        assert done.status_code == 202, done.content  # noqa: S101 - as above
        taken.setdefault("REST", []).append(took)
    return taken


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    from django.contrib.auth.models import User
    from django.test import Client

    from relay.models import BulkOperation
    from relay.operations.bulk import run_bulk

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with failed(options.jobs):
        client = Client(SERVER_NAME="localhost")
        client.force_login(User.objects.create_superuser("ada"))
        for name, taken in ask(client, options.runs).items():
            print(f"{median(taken):9.1f} {max(taken):9.1f} ms  {name}")  # noqa: T201 - a command's output
        made = BulkOperation.objects.earliest("id")
        _, took = timed(lambda: run_bulk(str(made.pk)))
        made.refresh_from_db()
        rate = made.done / took * 1_000
        print(f"{made.done:,} of {options.jobs:,} done, {rate:,.0f} jobs a second")  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
