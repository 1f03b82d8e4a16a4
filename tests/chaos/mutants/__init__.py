"""Known faults, one line each, put into a copy of relay.

The harness must see every one of them: that is the proof that it sees at all.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Mutant", "load", "make_copy"]

HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = HERE.parents[2] / "relay"


class MutantError(Exception):
    """A mutant no longer fits the code it is meant to break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mutant, as its file says; `search` matches whatever the white space."""

    name: str
    about: str
    file: str
    search: str
    replace: str


def load(name: str) -> Mutant:
    """Read mutants/NAME.toml.

    Raises:
        MutantError: there is no such mutant.
    """
    path = HERE / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in HERE.glob("*.toml")))
        raise MutantError(f"no mutant is called {name!r}: there are {known}")
    return Mutant(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))


def make_copy(mutant: Mutant, folder: Path) -> Path:
    """Copy relay into a folder and break the copy; return what to import it from.

    Raises:
        MutantError: the line to change is gone, so the mutant would prove nothing.
    """
    shutil.copytree(
        PACKAGE, folder / "relay", ignore=shutil.ignore_patterns("__pycache__")
    )
    target = folder / mutant.file
    pattern = r"\s+".join(re.escape(word) for word in mutant.search.split())
    text, count = re.subn(
        pattern, lambda _: mutant.replace, target.read_text(encoding="utf-8")
    )
    if not count:
        raise MutantError(
            f"mutant {mutant.name}: {mutant.file} no longer holds the line "
            f"{mutant.search!r}: fit tests/chaos/mutants/{mutant.name}.toml to it"
        )
    target.write_text(text, encoding="utf-8")
    return folder
