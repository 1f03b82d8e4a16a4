"""Moments on charts, such as deploys: lines, with labels where there is room."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from relay.dashboard.plane import LEFT, WIDTH
from relay.queries.documents import MarkDocument

__all__ = ["Mark", "clock", "labels_at", "place_marks"]

# Of a label that is drawn; all of it stands in the table and where one points.
LONGEST: Final = 24
# About how wide a character is.
CHARACTER: Final = 6.5


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line, and its label beside it; where others are in the way, none.

    Attributes:
        anchor: which end of the label is at the line, as SVG's text-anchor.
    """

    x: float
    label: str
    anchor: str


def labels_at(starts: Sequence[str], marks: Sequence[MarkDocument]) -> list[list[str]]:
    """Return the labels of the marks within each step, the earliest first."""
    times = [datetime.fromisoformat(start) for start in starts]
    found: list[list[str]] = [[] for _ in times]
    for mark in reversed(marks):
        place = bisect_right(times, datetime.fromisoformat(mark["at"])) - 1
        if place >= 0:
            found[place].append(mark["label"])
    return found


def place_marks(starts: Sequence[str], marks: Sequence[MarkDocument]) -> list[Mark]:
    """Return where the marks are drawn, from left to right.

    Args:
        starts: when each step of the chart begins, at equal distances.
        marks: the latest first.
    """
    if len(starts) < 2:
        return []
    begin, second = map(datetime.fromisoformat, starts[:2])
    whole: timedelta = (second - begin) * len(starts)
    found: list[Mark] = []
    taken = float(LEFT)
    for mark in reversed(marks):
        share = (datetime.fromisoformat(mark["at"]) - begin) / whole
        if not 0 <= share <= 1:
            continue
        x = LEFT + (WIDTH - LEFT) * share
        label = _short(mark["label"])
        size = CHARACTER * len(label)
        is_right = x + size <= WIDTH
        begins = x if is_right else x - size
        if begins < taken:
            label = ""
        else:
            taken = begins + size
        found.append(Mark(round(x, 1), label, "start" if is_right else "end"))
    return found


def _short(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def clock(text: str) -> str:
    """Return a time in the server's zone, to the minute."""
    return f"{timezone.localtime(datetime.fromisoformat(text)):%m-%d %H:%M}"
