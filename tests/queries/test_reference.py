"""The reference names every field of every document, every function and every cause."""

from __future__ import annotations

import re
from pathlib import Path

import relay
from relay import queries
from relay.queries import documents

PAGE = Path(relay.__file__).parent.parent / "docs" / "reference" / "queries.md"
# Fields of pages and counts, of which the text tells.
NAMES = re.compile(r"`([a-z_0-9]+)`")


def test_every_field_is_in_the_reference() -> None:
    named = set(NAMES.findall(PAGE.read_text()))

    for name in documents.__all__:
        fields = getattr(getattr(documents, name), "__annotations__", {})
        missing = fields.keys() - named
        assert missing <= {"count", "capped"}, f"{name}: {missing}"


def test_every_function_and_cause_is_in_the_reference() -> None:
    text = PAGE.read_text()

    for name in queries.__all__:
        if name.islower():
            assert f"`{name}" in text, name
    for cause in queries.CAUSES:
        assert f"| `{cause}`" in text or f"`, `{cause}`" in text, cause
    assert queries.__all__ == sorted(queries.__all__)
