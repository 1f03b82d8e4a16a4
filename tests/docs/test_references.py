"""What the documentation has from the code is as the code is."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from docs.site.references import COMMAND, DOCS, llms, parts_of, remade
from docs.site.tables import kept, rows_of
from tests.docs.pages import PAGES, ROOT, blocks

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


def test_the_readme_is_short_and_begins_with_code() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(text.split()) <= 900
    assert "\n```python\n" in "\n".join(text.splitlines()[:25])
    assert all(f"dashboard-{scheme}.png" in text for scheme in ("light", "dark"))


def test_the_support_matrix_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classifiers = "\n".join(project["classifiers"])
    rows = rows_of((DOCS / "support.md").read_text(encoding="utf-8"))

    pythons = re.findall(r":: Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    djangos = re.findall(r":: Django :: (\d\.\d)$", classifiers, re.MULTILINE)
    assert rows["Python"][1] == ", ".join(pythons)
    assert rows["Django"][1].partition(";")[0] == ", ".join(djangos)
    extras = {first.strip("`") for first in rows if first.startswith("`")}
    assert extras == set(project["optional-dependencies"])
    [everything] = project["optional-dependencies"]["all"]
    assert Requirement(everything).name == project["name"]
    assert Requirement(everything).extras == extras - {"all"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_written_for_other_programs_can_be_read(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            assert pytest.importorskip("yaml").safe_load(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "ini":
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(block.text)
            assert parser.sections()


def test_every_explanation_begins_with_the_question_that_it_answers() -> None:
    pages = sorted((DOCS / "explanation").glob("*.md"))

    begun = [page.read_text(encoding="utf-8").split("\n\n", 2)[1] for page in pages]
    assert len(begun) > 10
    assert [
        each for each in begun if not re.fullmatch(r"\*[A-Z][^\n]+\?\*", each)
    ] == []
