"""Known faults, a line or a few each, put into a copy of relay.

Each must be seen by the checks that it names: that is the proof that they see at all.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["REPOSITORY", "Edit", "Mutant", "MutantError", "load", "make_copy", "names"]

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parents[2]
# What tests need besides relay.
_FOR_TESTS: Final = ("tests", "testproject", "pyproject.toml")
_CACHES: Final = shutil.ignore_patterns("__pycache__", "out", ".*")
_NAME: Final = re.compile(r"([A-Z])(\d+)(\w*)")


class MutantError(Exception):
    """A mutant no longer fits the code it is meant to break, or there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a file; `search` matches whatever the white space."""

    file: str
    search: str
    replace: str
    # How often the text stands there; all of it is replaced.
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mutant, as its file says.

    Attributes:
        about: the fault.
        instead: why it is not word for word the fault it stands for, if it is not.
        profile: of the run that must break one of the rules.
        tests: each must fail.
    """

    name: str
    about: str
    edits: tuple[Edit, ...]
    instead: str = ""
    profile: str | None = None
    rules: frozenset[str] = frozenset()
    tests: tuple[str, ...] = ()


def names() -> list[str]:
    """Return the names of all mutants: M1, M2, … and then the others."""
    return sorted((path.stem for path in HERE.glob("*.toml")), key=_place)


def _place(name: str) -> tuple[bool, str, int, str]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise MutantError(f"{name}.toml: a mutant is called as M3 is")
    letter, number, rest = found.groups()
    return letter != "M", letter, int(number), rest


def load(name: str) -> Mutant:
    """Read mutants/NAME.toml.

    Raises:
        MutantError: there is no such mutant.
    """
    path = HERE / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(names())
        raise MutantError(f"no mutant is called {name!r}: there are {known}")
    said: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    edits = tuple(Edit(**edit) for edit in said.pop("edits"))
    rules, tests = frozenset(said.pop("rules", ())), tuple(said.pop("tests", ()))
    return Mutant(name=name, edits=edits, rules=rules, tests=tests, **said)


def make_copy(mutant: Mutant | None, folder: Path, *, with_tests: bool = False) -> Path:
    """Copy relay into a folder and break the copy; return what to import it from.

    Args:
        mutant: None leaves the copy sound.
        with_tests: copy the tests too, to be run there.

    Raises:
        MutantError: the line to change is gone, so the mutant would prove nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("relay", *(_FOR_TESTS if with_tests else ())):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_CACHES)
        else:
            shutil.copy(source, folder / name)
    for edit in () if mutant is None else mutant.edits:
        target = folder / edit.file
        text = target.read_text(encoding="utf-8")
        target.write_text(edited(edit, text, mutant), encoding="utf-8")
    return folder


def edited(edit: Edit, text: str, mutant: Mutant | None = None) -> str:
    """Return the text of a file with the edit made.

    Raises:
        MutantError: what it replaces is not there just as often as it says.
    """
    pattern = r"\s+".join(re.escape(word) for word in edit.search.split())
    changed, count = re.subn(pattern, lambda _: edit.replace, text)
    if count != edit.times:
        name = "a mutant" if mutant is None else mutant.name
        raise MutantError(
            f"{name}: {edit.file} holds {count} times, not {edit.times}, the text "
            f"{edit.search!r}: fit tests/chaos/mutants/{name}.toml to it"
        )
    return changed
