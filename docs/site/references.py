"""What in the documentation is made of the code: python -m docs.site.references.

Parts of pages between two marks, and llms.txt. tests/docs/test_references.py compares
them with the code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from docs.site.contents import contents
from docs.site.navigation import PURPOSE

__all__ = ["COMMAND", "DOCS", "llms", "main", "parts_of", "remade"]

COMMAND: Final = "python -m docs.site.references"
DOCS: Final = Path(__file__).resolve().parent.parent
_PART: Final = re.compile(
    r"(?P<begin><!-- made of the code: (?P<name>[\w.]+) -->\n)(?P<text>.*?)"
    r"(?P<end><!-- until here -->)",
    re.DOTALL,
)


def parts_of(page: Path) -> list[str]:
    """Return the names of a page's parts that are made."""
    return [found["name"] for found in _PART.finditer(page.read_text(encoding="utf-8"))]


def remade(page: Path) -> str:
    """Return the page's text with its parts made anew."""
    from docs.site import models, names, options  # here: they need Django set up

    makers: dict[str, Callable[[str], str]] = {
        "contents": lambda old: contents(DOCS),
        **options.MAKERS,
        **models.MAKERS,
    }

    def make(found: re.Match[str]) -> str:
        name = found["name"]
        maker = makers.get(name) or (lambda old: names.table_of(name))
        return f"{found['begin']}\n{maker(found['text']).strip()}\n\n{found['end']}"

    return _PART.sub(make, page.read_text(encoding="utf-8"))


def llms() -> str:
    """Return docs/llms.txt: what there is to read, for programs that read it."""
    return f"# relay\n\n> {PURPOSE}\n\n{contents(DOCS)}"


def main() -> None:
    """Write all of it."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    for page in sorted(DOCS.rglob("*.md")):
        if parts_of(page):
            page.write_text(remade(page), encoding="utf-8")
    (DOCS / "llms.txt").write_text(llms(), encoding="utf-8")


if __name__ == "__main__":
    main()
