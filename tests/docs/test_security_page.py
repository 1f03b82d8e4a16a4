"""What the pages say is tried of security and of the surfaces is tried there."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.pages import ROOT

REQUIREMENTS = [1, 2, 3, 4, 7, 12, 13, 16, 17, 18, *range(29, 37)]
# Failures that users of other queues reported, as far as they are about surfaces.
FAILURES = [
    *(9, 16, 42, 43, 50, 53, 56, 57, 71, 73, 85, 87, 102, 107, 109, 111, 120, 123, 125),
    *(131, 136, 137, 146, 147, 148),
]
_REQUIREMENT = re.compile(r"^\| X(\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_FAILURE = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def rows() -> dict[str, str]:
    """Return the cell of tests of each row."""
    page = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    found = {f"X{number}": tests for number, tests in _REQUIREMENT.findall(page)}
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    _, _, after = text.partition("\n## Failures of other surfaces\n")
    return found | dict(_FAILURE.findall(after.partition("\n## ")[0]))


def test_every_requirement_and_failure_has_its_row() -> None:
    wanted = {*(f"X{number}" for number in REQUIREMENTS), *map(str, FAILURES)}

    assert rows().keys() == wanted


@pytest.mark.parametrize(
    "row", [*(f"X{number}" for number in REQUIREMENTS), *map(str, FAILURES)]
)
def test_the_tests_of_a_row_are_there(row: str) -> None:
    named = _TEST.findall(rows()[row])

    assert named
    for path, name in named:
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (path, name)
