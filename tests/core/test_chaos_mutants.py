"""A mutant that no longer fits the code proves nothing, and must say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.mutants import PACKAGE, MutantError, load, make_copy


@pytest.mark.parametrize("name", ["M1", "M2"])
def test_a_mutant_changes_only_its_copy(name: str, tmp_path: Path) -> None:
    mutant = load(name)
    original = (PACKAGE.parent / mutant.file).read_text()

    make_copy(mutant, tmp_path)

    mutated = (tmp_path / mutant.file).read_text()
    assert mutant.replace in mutated
    assert mutated != original
    assert (PACKAGE.parent / mutant.file).read_text() == original
    compile(mutated, mutant.file, "exec")


def test_a_mutant_whose_line_is_gone_is_refused(tmp_path: Path) -> None:
    mutant = replace(load("M1"), search="AND a line that nobody wrote")

    with pytest.raises(MutantError, match="no longer holds"):
        make_copy(mutant, tmp_path)


def test_an_unknown_mutant_is_refused() -> None:
    with pytest.raises(MutantError, match="M1"):
        load("M99")
