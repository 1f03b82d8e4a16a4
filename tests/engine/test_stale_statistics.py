"""Statements that many rows must not slow down, where statistics know of none of them.

So they are after a burst, and until the next ANALYZE: indexes that were empty then are
taken to be empty still, and cheaper than any look by a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import pytest
from django.db import connection

from relay.engine import control, gauges, order, replay, unique_keys
from relay.ids import uuid7

pytestmark = pytest.mark.django_db

MANY: Final = 20_000
FEW: Final = 50
COLUMNS: Final = (
    "id, task, args, state, finished_at, replay_of, unique_key, unique_scope"
)
ENDED: Final = f"""
INSERT INTO relay_job ({COLUMNS})
SELECT gen_random_uuid(), 'one', '{{}}', 'completed', now(), gen_random_uuid(),
       int4send(n), 'window:' || encode(int4send(n), 'hex')
FROM generate_series(1, %s) AS n
"""
QUEUED: Final = """
INSERT INTO relay_job (id, task, args)
SELECT gen_random_uuid(), 'one', '{}' FROM generate_series(1, %s)
"""


@pytest.fixture
def ids(db: None) -> list[UUID]:
    """Some of many jobs that have ended, each with its key; a few are queued."""
    with connection.cursor() as cursor:
        cursor.execute(QUEUED, [3_000])
        cursor.execute("ANALYZE relay_job")
        cursor.execute("DELETE FROM relay_job")
        cursor.execute(ENDED, [MANY])
        cursor.execute(QUEUED, [FEW])
        cursor.execute(
            "SELECT id FROM relay_job WHERE state = 'completed' LIMIT %s", [FEW]
        )
        return [row[0] for row in cursor.fetchall()]


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def looked_at(statement: str, values: Mapping[str, Any]) -> float:
    """Return how many entries and rows of relay_job a statement reads."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
        [[plan]] = cursor.fetchall()
    [document] = plan if isinstance(plan, list) else json.loads(plan)
    return sum(
        (each["Actual Rows"] + each.get("Rows Removed by Filter", 0))
        * each["Actual Loops"]
        for each in nodes(document["Plan"])
        if each.get("Relation Name") == "relay_job" and "Scan" in each["Node Type"]
    )


def test_what_is_done_by_a_key_reads_the_rows_that_have_it(ids: list[UUID]) -> None:
    keys = [number.to_bytes(4) for number in range(1, FEW + 1)]
    asked = [{"key": key.hex(), "task": "one", "replaces": True} for key in keys]
    statements: dict[str, dict[str, Any]] = {
        unique_keys.FREE: {"keys": keys},
        unique_keys.CHANGE: {"jobs": json.dumps(asked)},
        order.LOCK_HOLDERS: {"keys": keys, "changed": keys},
        unique_keys.LOOK_UP: {"keys": keys, "ids": [uuid7()]},
        control.FREE_KEY: {"id": ids[0]},
        control.KEY_HOLDER: {"id": ids[0]},
        control.LOCK_WITH_KEYS: {"ids": ids},
    }

    found = [looked_at(text, values) for text, values in statements.items()]

    assert max(found) <= 4 * FEW, found


def test_a_replay_of_many_reads_those_and_no_others(ids: list[UUID]) -> None:
    values = {
        "ids": ids,
        "replay_ids": [uuid7() for _ in ids],
        "asked_at": datetime(2026, 1, 1, tzinfo=UTC),
        "actor": "ada",
        "why": None,
        "is_logged": False,
    }

    assert looked_at(replay.REPLAY, values) <= 4 * FEW


def test_no_gauge_reads_what_it_does_not_count(ids: list[UUID]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(gauges.SETTINGS)

    found = {
        name: sum(looked_at(each.replace("%", "%%"), {}) for each in statements)
        for name, statements in gauges.STATEMENTS.items()
    }

    assert max(found.values()) <= 4 * FEW, found
