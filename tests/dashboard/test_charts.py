"""Charts: what is drawn where."""

from __future__ import annotations

from typing import Any

import pytest

from relay.dashboard.charts import BASE, LEFT, TOP, WIDTH, jobs_chart, times_chart
from relay.dashboard.words import span


def step(minute: int, **counts: Any) -> dict[str, Any]:
    times = {"mean": None, "p50": None, "p95": None, "p99": None}
    none = {"completed": 0, "failed": 0, "cancelled": 0, "retried": 0}
    at = f"2026-01-01T00:{minute:02}:00Z"
    return {"at": at, "run": times, "wait": times, **none, **counts}


def test_bars_of_a_step_stand_on_each_other_and_the_highest_fills_the_plane() -> None:
    chart = jobs_chart([step(0, completed=6, failed=2), step(1, completed=4)])

    first, second, third = chart.bars
    assert (first.name, second.name, third.name) == ("completed", "failed", "completed")
    assert first.y + first.height == BASE
    assert second.y + second.height == pytest.approx(first.y)
    assert second.y == TOP
    assert third.height == pytest.approx((BASE - TOP) / 2)
    assert LEFT <= first.x < third.x < WIDTH
    assert chart.most == "8"
    assert chart.rows[0]["shown"] == ["6", "2", "0", "0"]


def test_a_line_is_broken_where_nothing_is_known() -> None:
    known = {"mean": 1.0, "p50": 1.0, "p95": 2.0, "p99": 4.0}
    rows = [step(0, wait=known), step(1), step(2, wait=known)]

    chart = times_chart(rows, "wait")

    assert [line.name for line in chart.lines] == ["p50", "p95", "p99"]
    assert all(line.line.count("M") == 2 for line in chart.lines)
    assert f" {TOP:.1f}" in chart.lines[-1].line
    assert chart.most == "4.0 s"


@pytest.mark.parametrize("rows", [[], [step(0)], [step(0), step(1)]])
def test_nothing_is_drawn_of_nothing(rows: list[Any]) -> None:
    assert jobs_chart(rows).bars == []
    assert all(line.line == "" for line in times_chart(rows, "run").lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),  # noqa: RUF001 - an en dash
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_600, "1 h"),
        (7_800, "2 h 10 min"),
        (86_400 * 3 + 3_600 * 4, "3 d 4 h"),
    ],
)
def test_a_span_is_written_as_people_read_it(seconds: float | None, text: str) -> None:
    assert span(seconds) == text
