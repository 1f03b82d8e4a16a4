"""Pages of documentation, taken apart into what can be run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "blocks", "headings", "links", "places"]

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.py)\n")
_PLACE = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the file it says it is."""

    language: str
    text: str
    file: str | None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    for language, text in _FENCE.findall(page.read_text()):
        name = _FILE.match(text) if language == "python" else None
        found.append(Block(language, text, name[1] if name else None))
    return found


def links(page: Path) -> list[Path]:
    """Return the files that a page's relative links point at."""
    return [
        (page.parent / target).resolve() for target in _LINK.findall(page.read_text())
    ]


def places(page: Path) -> list[tuple[Path, str]]:
    """Return the headings of pages that a page's links point at."""
    return [
        ((page.parent / target).resolve() if target else page, anchor)
        for target, anchor in _PLACE.findall(page.read_text())
    ]


def headings(page: Path) -> set[str]:
    """Return the headings of a page, as links name them."""
    text = _FENCE.sub("", page.read_text())
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }
