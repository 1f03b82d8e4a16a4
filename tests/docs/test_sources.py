"""The pages that code names as its source are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

_PAGE = re.compile(r"\bdocs/[a-z0-9/_-]+\.md\b")


def test_pages_that_code_names_are_there() -> None:
    files = [
        file
        for folder in ("relay", "bench", "tests")
        for file in (ROOT / folder).rglob("*.py")
    ]
    named = {
        page
        for file in files
        for page in _PAGE.findall(file.read_text(encoding="utf-8"))
    }

    assert "docs/explanation/leases.md" in named
    assert sorted(page for page in named if not (ROOT / page).is_file()) == []
