"""Texts in tables that a spreadsheet opens."""

from __future__ import annotations

from typing import Final

__all__ = ["never_a_formula"]

_FORMULA: Final = (
    *("=", "+", "-", "@", "\t", "\r", "\n"),
    *("\uff1d", "\uff0b", "\uff0d", "\uff20"),  # the same in full width
)


def never_a_formula(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
