"""Pages that run under a strict content security policy, without any other origin.

A theme may write scripts and styles into its pages. They become files here, so that
script-src 'self' and style-src 'self' are enough; what then still stands in a page, or
would be loaded from elsewhere, is a fault of the build.
"""

from __future__ import annotations

import re
from hashlib import sha256
from html.parser import HTMLParser
from typing import Final

__all__ = ["close", "faults"]

_INLINE: Final = re.compile(
    r"<(?P<tag>script|style)(?P<rest>(?: [^>]*)?)>(?P<text>[^<].*?)</(?P=tag)>",
    re.DOTALL,
)
# On these an attribute of the same name says what a style would.
_DRAWN: Final = re.compile(
    r'<(?P<tag>svg|path|line|circle)(?P<before>[^>]*?) style="(?P<style>[^"]*)"'
)
# What the theme leaves unsaid: of what level a heading is, and that keys scroll code.
_UNSAID: Final = {
    'role="heading">': 'role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
}
_FOLDER: Final = "_static/"
# What a browser fetches by itself; a link is followed by people.
_FETCHED: Final = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "srcset",
    "link": "href",
}


def close(html: str, to_root: str) -> tuple[str, dict[str, str]]:
    """Return the page with its scripts and styles as files, and those by their paths.

    Args:
        to_root: the way from the page's folder to the site's, such as "../".
    """
    files: dict[str, str] = {}

    def move(found: re.Match[str]) -> str:
        tag, text = found["tag"], found["text"].strip()
        if not text or " src=" in found["rest"]:
            return found[0]
        ending = {"script": "js", "style": "css"}[tag]
        path = f"{_FOLDER}{sha256(text.encode()).hexdigest()[:12]}.{ending}"
        files[path] = text + "\n"
        if tag == "script":
            return f'<script src="{to_root}{path}"></script>'
        return f'<link rel="stylesheet" href="{to_root}{path}">'

    closed = _DRAWN.sub(_attributes, _INLINE.sub(move, html))
    for unsaid, said in _UNSAID.items():
        closed = closed.replace(unsaid, said)
    return closed, files


def _attributes(found: re.Match[str]) -> str:
    given = (each.partition(":") for each in found["style"].split(";") if each.strip())
    said = " ".join(f'{name.strip()}="{value.strip()}"' for name, _, value in given)
    return f"<{found['tag']}{found['before']} {said}"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.faults.append(f"<{tag}> stands in the page")
        for name in given:
            if name == "style" or name.startswith("on"):
                self.faults.append(f"<{tag} {name}=…>")
        address = given.get(_FETCHED.get(tag, "")) or ""
        if re.match(r"(?:[a-z]+:)?//", address):
            self.faults.append(f"<{tag}> loads {address}")
        if tag == "img" and not given.get("alt"):
            self.faults.append(f"no alt text for {given.get('src')}")


def faults(html: str) -> list[str]:
    """Return what a strict policy forbids, what loads from elsewhere, images untold."""
    reader = _Reader()
    reader.feed(html)
    return reader.faults
