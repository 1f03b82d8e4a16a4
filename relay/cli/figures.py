"""Times and numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from relay.cli.printer import Document

__all__ = ["ago", "count", "jobs", "length", "meant", "moment", "size"]

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def length(seconds: float | None) -> str:
    """Return a span as people write it: two units at most."""
    if seconds is None:
        return ""
    if 0 < seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    rest, shown = int(seconds), list[str]()
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            shown.append(f"{number}{unit}")
    return "".join(shown[:2])


def ago(text: str | None, *, now: datetime | None = None) -> str:
    """Return how long an instant is past, or with a plus how long it is ahead."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # of another release
        return text
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    return length(seconds) if seconds >= 0 else f"+{length(-seconds)}"


def size(number: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1_024:
            return f"{number:.0f} {unit}"
        number /= 1_024
    return f"{number:,.1f} TiB"


def count(document: Document | None) -> str:
    """Return a count, with a plus where there are more."""
    if document is None:
        return ""
    return f"{document['count']:,}{'+' if document['capped'] else ''}"


def jobs(found: Document) -> str:
    """Return how many jobs were counted."""
    return f"{count(found)} job{'' if found['count'] == 1 else 's'}"


def meant(found: Document) -> str:
    """Return how many jobs an act is about, and what bounds it beyond the count."""
    return f"{jobs(found)}{', all that are there now' if found['capped'] else ''}"


def moment(text: str | None) -> str:
    """Return an instant to the millisecond."""
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except (OverflowError, ValueError):  # of another release, or at the edge of time
        return text
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
