"""Spans of time as people read them."""

from __future__ import annotations

from typing import Final

__all__ = ["NOTHING", "span"]

NOTHING: Final = "–"  # noqa: RUF001 - an en dash


def span(seconds: float | None) -> str:
    """Return seconds as 12 ms, 3.4 s, 5 min, 2 h 10 min or 3 d 4 h."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
