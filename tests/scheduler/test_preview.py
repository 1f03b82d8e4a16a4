"""What the admin shows of runs to come is what comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.models import Schedule
from relay.scheduler.cron import load_zone, occurrences, parse
from relay.scheduler.preview import preview


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(cron: str, now: str, limit: int = 3, **fields: Any) -> list[tuple[str, str]]:
    schedule = Schedule(
        name="nightly", cron=cron, **{"timezone": "Europe/Berlin", **fields}
    )
    return [
        (f"{run.local:%d %H:%M}", run.mark)
        for run in preview(schedule, now=at(now), limit=limit)
    ]


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        (
            "30 2 * * *",
            "2026-03-27 12:00",
            [
                ("28 02:30", ""),
                ("29 03:00", "the clocks go forward"),
                ("30 02:30", ""),
            ],
        ),
        (
            "0 7 * * *",
            "2026-03-27 12:00",
            [
                ("28 07:00", ""),
                ("29 07:00", "the clocks have changed"),
                ("30 07:00", ""),
            ],
        ),
        (
            "30 2 * * *",
            "2026-10-24 12:00",
            [
                ("25 02:30", "the clocks go back: the first of two"),
                ("26 02:30", "the clocks have changed"),
                ("27 02:30", ""),
            ],
        ),
        (
            "30 * * * *",
            "2026-10-25 00:00",
            [
                ("25 02:30", "the clocks go back: the first of two"),
                ("25 02:30", "the clocks go back: the second of two"),
                ("25 03:30", ""),
            ],
        ),
    ],
)
def test_changes_of_the_clocks_are_marked(
    cron: str, now: str, expected: list[tuple[str, str]]
) -> None:
    assert runs(cron, now) == expected


def test_a_spread_is_shown_beside_the_planned_time() -> None:
    schedule = Schedule(name="nightly", cron="0 0 * * *", spread_ms=600_000)

    # The run of midnight is still to come: it is put off by 526 s.
    [first, second] = preview(schedule, now=at("2026-06-01 00:05"), limit=2)

    assert first.planned_at == at("2026-06-01 00:00")
    assert first.starts_at == at("2026-06-01 00:08:46")
    assert second.starts_at - first.starts_at == timedelta(days=1)


def test_the_preview_is_what_expressions_come_to() -> None:
    schedule = Schedule(name="x", cron="*/7 3 * * *", timezone="Australia/Lord_Howe")
    now = at("2026-10-01 00:00")
    plain = occurrences(
        parse("*/7 3 * * *"), load_zone("Australia/Lord_Howe"), after=now, limit=50
    )

    found = preview(schedule, now=now, limit=50)

    assert [run.planned_at for run in found] == list(plain)
