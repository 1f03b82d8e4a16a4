"""What the commands say of a database that they cannot use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.management.test_console import run
from tests.worker.harness import ROOT

WAYS = """
import asyncio
from datetime import UTC, datetime
from uuid import uuid4
import relay
from relay import operations, queries, stats
from relay.handles import JobHandle
from relay.load import noop

DAY = datetime(2026, 1, 1, tzinfo=UTC)
root = operations.Actor(name="root", source="system")
for ask in (
    noop.enqueue,
    lambda: relay.enqueue_many([noop.job(), noop.job()]),
    lambda: noop.using(unique=relay.Unique()).enqueue(),
    lambda: asyncio.run(noop.aenqueue()),
    lambda: JobHandle(uuid4(), "x").state,
    lambda: operations.pause_queue(root, "default"),
    lambda: queries.list_queues(root),
    lambda: queries.get_job(root, uuid4()),
    lambda: stats.read_totals(using="default", since=DAY, until=DAY),
):
    try:
        ask()
    except relay.RelayError as error:
        print(error)
"""


def test_another_database_is_told_of_whatever_is_asked() -> None:
    said = run(WAYS, "sqlite3").splitlines()

    assert len(said) == 9
    for line in said:
        assert "DATABASES['default'] is sqlite: relay keeps its jobs in" in line
        assert "Give RELAY['DATABASE'] the alias of a PostgreSQL database" in line


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("command", ["relay_worker", "relay_scheduler"])
def test_without_the_tables_it_ends_with_what_to_run(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testproject", command, "--skip-checks"],
        cwd=ROOT,
        env={**os.environ, "RELAY_TEST_DATABASE": "postgres"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "run manage.py migrate" in done.stderr
    assert "Traceback" not in done.stderr
