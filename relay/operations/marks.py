"""Moments that charts point out, such as a deploy."""

from __future__ import annotations

from typing import Final

from relay.exceptions import ArgumentError
from relay.operations.registry import Act, operation

__all__ = ["LONGEST_LABEL", "MARKED", "mark"]

# What a mark is put on, as the record names it: all charts alike. One name, so that
# the latest marks are read from the end of relay_audit_target_idx.
MARKED: Final = "charts"
LONGEST_LABEL: Final = 100


@operation("add_audit", subject="mark")
def mark(act: Act, label: str) -> str:
    """Mark this moment on the charts, such as "deploy 1.4"; return the label.

    The row of the record is the mark: it is shown for as long as
    RELAY["RETENTION_AUDIT"] says.

    Args:
        label: 1 to 100 characters on one line; spaces around it are left out.

    Raises:
        NotAllowed: the actor lacks add_audit.
        ArgumentError: the label is none.
    """
    text = label.strip()
    if not 0 < len(text) <= LONGEST_LABEL or not text.isprintable():
        raise ArgumentError(
            f"label={label[:LONGEST_LABEL]!r}: give 1 to {LONGEST_LABEL} characters on "
            "one line, such as 'deploy 1.4'"
        )
    act.note(MARKED, label=text)
    act.log("charts.marked", "charts marked", label=text)
    return text
