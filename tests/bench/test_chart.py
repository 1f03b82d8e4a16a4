"""The chart of a run: well-formed, with a bar for each figure."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from bench.chart import chart
from bench.figures import row

SVG = "{http://www.w3.org/2000/svg}"


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": {
            "at": "2026-11-29T12:00:00+00:00",
            "cores": 2,
            "postgresql": "18.6",
            "python": "3.12.1",
        },
        "results": {"some": {"rows": list(rows)}},
    }


def test_each_figure_has_a_bar_with_its_name_and_its_number() -> None:
    drawn = chart(
        report(
            row(
                "enqueue, one by one",
                "jobs/s",
                [3_000.0, 3_400.0, 3_200.0],
                ceiling=("INSERT", [5_000.0, 5_000.0, 5_000.0]),
                rivals={"a <rival> & co": [12.0, 13.0, 11.0]},
            )
        )
    )

    root = ElementTree.fromstring(drawn)
    bars = {
        bar.findtext(f"{SVG}title"): float(bar.attrib["width"])
        for bar in root.iter(f"{SVG}rect")
        if bar.find(f"{SVG}title") is not None
    }
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert bars.keys() == {"relay", "PostgreSQL alone", "a <rival> & co"}
    assert bars["PostgreSQL alone"] > bars["relay"] > bars["a <rival> & co"] > 0
    assert "3,200" in words
    assert "prefers-color-scheme: dark" in drawn


def test_a_single_figure_can_be_drawn() -> None:
    drawn = chart(report(row("drain, 1 process, function", "jobs/s", [1_000.0])))

    ElementTree.fromstring(drawn)


def test_a_run_without_those_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no row to draw"):
        chart(report(row("idle to start, p50", "ms", [1.0])))
