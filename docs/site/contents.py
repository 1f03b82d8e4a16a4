"""The list of all pages, by section."""

from __future__ import annotations

import re
from pathlib import Path

from docs.site.navigation import NAVIGATION

__all__ = ["contents", "title_of"]

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def title_of(page: Path) -> str:
    """Return the heading of a page."""
    found = _TITLE.search(page.read_text(encoding="utf-8"))
    return found[1] if found else page.stem


def contents(docs: Path) -> str:
    """Return a list of links for each section, in Markdown."""
    lines: list[str] = []
    for section, pages in NAVIGATION.items():
        lines += [f"## {section}", ""]
        lines += [
            f"- [{title_of(docs / f'{page}.md')}]({page}.md): {purpose}"
            for page, purpose in pages.items()
        ]
        lines.append("")
    return "\n".join(lines)
