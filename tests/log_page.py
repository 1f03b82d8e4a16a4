"""What docs/reference/logs.md says of each event."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

__all__ = ["read_log_page"]


def read_log_page() -> dict[str, tuple[str, set[str]]]:
    """Return what the page says: by event, the level and the fields."""
    found: dict[str, tuple[str, set[str]]] = {}
    before: set[str] = set()
    for line in (ROOT / "docs" / "reference" / "logs.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        fields = set(re.findall(r"`(\w+)`", cells[2]))
        before = fields | (before if re.match("those|the same", cells[2]) else set())
        for event in re.findall(r"`([\w.]+)`", cells[0]):
            found[event] = cells[1], before
    return found
