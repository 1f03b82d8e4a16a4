"""A mutant that no longer fits the code proves nothing, and must say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.mutants import (
    REPOSITORY,
    MutantError,
    edited,
    load,
    make_copy,
    names,
)
from tests.chaos.profiles import PROFILES


def test_every_fault_of_the_plan_has_a_mutant() -> None:
    assert {f"M{number}" for number in range(1, 16)} <= set(names())


@pytest.mark.parametrize("name", names())
def test_every_mutant_fits_the_code(name: str) -> None:
    mutant = load(name)
    texts = {edit.file: (REPOSITORY / edit.file).read_text() for edit in mutant.edits}
    changed = dict(texts)

    for edit in mutant.edits:
        changed[edit.file] = edited(edit, changed[edit.file], mutant)

    for file, text in changed.items():
        assert text != texts[file]
        compile(text, file, "exec")


@pytest.mark.parametrize("name", names())
def test_every_mutant_names_checks_that_there_are(name: str) -> None:
    mutant = load(name)

    assert mutant.profile is not None or mutant.tests
    assert mutant.profile is None or (mutant.profile in PROFILES and mutant.rules)
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}(" in (REPOSITORY / file).read_text()


def test_a_mutant_changes_only_its_copy(tmp_path: Path) -> None:
    mutant = load("M1")
    (edit,) = mutant.edits
    original = (REPOSITORY / edit.file).read_text()

    make_copy(mutant, tmp_path)

    mutated = (tmp_path / edit.file).read_text()
    assert mutated.count(edit.replace) == edit.times
    assert (REPOSITORY / edit.file).read_text() == original


def test_a_mutant_whose_line_is_gone_is_refused(tmp_path: Path) -> None:
    mutant = load("M1")
    (edit,) = mutant.edits
    gone = replace(edit, search="AND a line that nobody wrote")

    with pytest.raises(MutantError, match="holds 0 times, not 5"):
        make_copy(replace(mutant, edits=(gone,)), tmp_path)


def test_an_unknown_mutant_is_refused() -> None:
    with pytest.raises(MutantError, match="M1"):
        load("M99")
