"""What the documentation has from the code is as the code is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.site.references import COMMAND, DOCS, llms, parts_of, remade
from docs.site.tables import kept
from tests.docs.pages import PAGES, ROOT

MADE = [page for page in PAGES if parts_of(page)]
EXTRAS = ("prometheus_client", "rest_framework")


@pytest.mark.parametrize("page", MADE, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_says_what_the_code_says(page: Path) -> None:
    for name in EXTRAS:
        pytest.importorskip(name)

    assert page.read_text(encoding="utf-8") == remade(page), COMMAND


def test_llms_txt_lists_the_pages_of_the_navigation() -> None:
    assert (DOCS / "llms.txt").read_text(encoding="utf-8") == llms(), COMMAND


def test_a_name_of_the_code_gets_a_row_and_one_that_is_gone_loses_it() -> None:
    old = "| `A` | 1 | kept \\| words |\n| `GONE` | 2 | old |\n"
    known = {"NEW": ("3", "said by the code"), "A": ("4", "not taken")}

    made = kept(old, ("key", "default", "meaning"), known, facts=[1])

    assert made.splitlines()[2:] == [
        "| `NEW` | 3 | said by the code |",
        "| `A` | 4 | kept \\| words |",
    ]


def test_every_word_of_a_row_is_said() -> None:
    empty = [
        (page.name, line)
        for page in MADE
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| `[^|]+` \| \|$", line)
    ]

    assert empty == []


def test_the_readme_leads_to_the_contents() -> None:
    assert "(docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
