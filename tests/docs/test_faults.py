"""docs/reliability.md says of each kind of fault where it is tried, and that is so."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.chaos.profiles import PROFILES
from tests.docs.pages import ROOT

_ROW = re.compile(r"^\| (F\d+) \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]+)`")


@cache
def _section() -> str:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    _, _, after = text.partition("\n## Where each kind of fault is tried\n")
    return after.partition("\n## ")[0]


@cache
def _campaigns() -> set[str]:
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {*PROFILES, *re.findall(r"^chaos-([a-z]+):", made, re.MULTILINE)}


ROWS = _ROW.findall(_section())


def test_every_kind_of_fault_has_its_row() -> None:
    assert [row[0] for row in ROWS] == [f"F{number}" for number in range(1, 21)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_fault_is_tried_where_the_table_says(row: tuple[str, str, str, str]) -> None:
    campaigns, tests = _QUOTED.findall(row[2]), _QUOTED.findall(row[3])

    assert campaigns or tests
    assert set(campaigns) <= _campaigns()
    for named in tests:
        path, _, name = named.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), named
