"""Charts: what is drawn where."""

from __future__ import annotations

from typing import Any

import pytest

from relay.dashboard.charts import jobs_chart, share_chart, times_chart
from relay.dashboard.plane import BASE, LEFT, TOP, WIDTH
from relay.dashboard.words import span
from relay.queries.documents import MarkDocument


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


def test_a_share_is_of_those_that_ended_for_good() -> None:
    rows = [step(0, completed=3, failed=1, retried=90), step(1), step(2, completed=5)]

    chart = share_chart(rows)

    assert chart.most == "25.0%"
    assert [row["shown"] for row in chart.rows] == [["25.0%"], ["–"], ["0.0%"]]  # noqa: RUF001 - an en dash


# --- what is said of a step ----------------------------------------------------------


def test_each_step_says_what_was_in_it() -> None:
    chart = jobs_chart([step(0, completed=1_200, failed=2), step(1)])

    first, second = chart.steps
    assert first.text.endswith(":00: 1,200 completed, 2 failed")
    assert second.text.endswith(":01: –")  # noqa: RUF001 - an en dash
    assert first.x == LEFT
    assert first.x + first.width == pytest.approx(second.x, abs=0.2)
    assert second.x + second.width == pytest.approx(WIDTH, abs=0.2)


def test_a_step_of_times_says_the_quantiles() -> None:
    known = {"mean": 1.0, "p50": 1.0, "p95": 2.0, "p99": 4.0}

    chart = times_chart([step(0, wait=known), step(1)], "wait")

    assert chart.steps[0].text.endswith(":00: p50 1.0 s, p95 2.0 s, p99 4.0 s")


# --- marks ---------------------------------------------------------------------------


def mark(minute: float, label: str = "deploy 1.4") -> MarkDocument:
    whole, part = divmod(minute, 1)
    at = f"2026-01-01T00:{int(whole):02}:{int(part * 60):02}Z"
    return {"at": at, "label": label, "actor": "ada"}


def test_a_mark_stands_where_its_time_is_and_in_words_too() -> None:
    chart = jobs_chart([step(n) for n in range(10)], marks=[mark(5)])

    [line] = chart.marks
    assert line.x == LEFT + (WIDTH - LEFT) / 2
    assert (line.label, line.anchor) == ("deploy 1.4", "start")
    assert "Marks: deploy 1.4 (" in chart.text
    assert [row["marks"] for row in chart.rows].index(["deploy 1.4"]) == 5
    assert chart.steps[5].text.endswith("· deploy 1.4")


def test_a_label_at_the_edge_is_on_the_other_side_and_none_is_on_another() -> None:
    marks = [mark(9.5, "the last"), mark(2.1, "in its way"), mark(2, "first " * 9)]

    chart = jobs_chart([step(n) for n in range(10)], marks=marks)

    first, hidden, last = chart.marks
    assert (first.label, len(first.label)) == ("first first first first…", 24)
    assert hidden.label == ""
    assert (last.label, last.anchor) == ("the last", "end")
    assert chart.rows[2]["marks"] == [("first " * 9), "in its way"]


def test_marks_before_the_chart_are_not_drawn() -> None:
    before: MarkDocument = {**mark(1), "at": "2025-12-31T23:59:00Z"}

    chart = jobs_chart([step(n) for n in range(10)], marks=[before])

    assert chart.marks == []
    assert not any(row["marks"] for row in chart.rows)


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
