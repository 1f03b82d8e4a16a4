"""What the logs of a run hold that no fault explains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.histories import Complaint

__all__ = ["complaints_of"]

SERVER: Final = "PostgreSQL"

_SERVER_ERROR: Final = re.compile(r"\bERROR:\s+(.*)")
# Timeouts are a busy machine's: statements may take a sixth of the lease of one second.
_ALLOWED_ERRORS: Final = ("canceling statement due to",)

_TRACEBACK: Final = "Traceback (most recent call last):"
# A cut connection may show as one of the first two; the others are raised by handlers
# on purpose. Anything else is a fault of relay's own.
_ALLOWED_EXCEPTIONS: Final = (
    "psycopg.",
    "django.db.utils.",
    "tests.chaos.workload.PlannedFailure",
    "relay.exceptions.SkipRetry",
)


def complaints_of(
    folder: Path, server_log: Path, offset: int, *, allowed: Sequence[str] = ()
) -> list[Complaint]:
    """Read a run's logs, and the server's from an offset in bytes on.

    Args:
        allowed: what the run's faults make the server say; regular expressions.
    """
    found: Counter[tuple[str, str]] = Counter()
    with server_log.open("rb") as file:
        file.seek(offset)
        for line in file.read().decode(errors="replace").splitlines():
            error = _SERVER_ERROR.search(line)
            if (
                error
                and not error[1].startswith(_ALLOWED_ERRORS)
                and not any(re.match(each, error[1]) for each in allowed)
            ):
                found[SERVER, error[1]] += 1
    for path in sorted(folder.glob("*.log")):
        for text in _exceptions(path.read_text(errors="replace")):
            if not text.startswith(_ALLOWED_EXCEPTIONS):
                found[path.stem, text] += 1
    return [
        Complaint(source=source, text=text, count=count)
        for (source, text), count in found.items()
    ]


def _exceptions(text: str) -> Iterator[str]:
    """Yield the last line of each traceback."""
    is_inside = False
    for line in text.splitlines():
        if line == _TRACEBACK:
            is_inside = True
        elif is_inside and line and not line[0].isspace():
            is_inside = False
            yield line
