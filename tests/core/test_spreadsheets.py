"""Cells that a spreadsheet opens as text."""

from __future__ import annotations

import pytest

from relay.spreadsheets import never_a_formula


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_what_begins_like_a_formula_is_made_a_text(first: str) -> None:
    assert never_a_formula(f"{first}1+1") == f"'{first}1+1"


@pytest.mark.parametrize("text", ["", "a=1", "1-1", " x"])
def test_other_texts_stay(text: str) -> None:
    assert never_a_formula(text) == text
