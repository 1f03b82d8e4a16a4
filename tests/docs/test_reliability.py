"""The bugs of other queues: each has tests, and the page names all of them."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

BUGS = range(1, 20)
_ROW = re.compile(r"^\| B(\d+) \|(.*)\|$", re.MULTILINE)


def told() -> dict[int, set[str]]:
    """Return the tests that the page names for each bug."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    return {
        int(number): set(re.findall(r"`(test_b\d+_\w+)`", rest))
        for number, rest in _ROW.findall(page)
    }


def there() -> set[str]:
    """Return the tests of bugs that there are."""
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(
            r"^def (test_b\d+_\w+)\(", path.read_text(), re.MULTILINE
        )
    }


def test_every_bug_has_a_test_of_its_number() -> None:
    assert sorted(told()) == list(BUGS)
    for number, tests in told().items():
        assert tests
        assert all(name.startswith(f"test_b{number:02}_") for name in tests)


def test_the_page_names_the_tests_that_there_are() -> None:
    assert {name for tests in told().values() for name in tests} == there()
