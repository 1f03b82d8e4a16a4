"""What make installs is locked, hash by hash, and is what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from requirements.locks import FOLDER, locks, read

ROOT = FOLDER.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ["3.11", "3.12", "3.13"]
# Lock -> what of pyproject.toml it is made of, and the first Python that it is for.
DEVELOP = ["dependencies", "standalone", "backend", "test", "lint", "types"]
MADE_OF = {
    "develop": (DEVELOP, "3.11"),
    "run": (["dependencies", "standalone", "backend"], "3.11"),
    "docs": (["docs"], "3.11"),
    "lock": (["lock"], "3.11"),
    "pip": (["pip"], "3.11"),
    "django52": (["django52"], "3.11"),
    "django60": (["django60"], "3.12"),
    "django61": (["django61"], "3.12"),
}
# Measured by whoever wants to: make installs none of them.
UNLOCKED = {"rivals"}


def asked_for(part: str) -> list[Requirement]:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    groups = PROJECT["dependency-groups"]
    if part == "dependencies":
        lines = project["dependencies"]
    else:
        lines = groups[part] if part in groups else extras[part]
    return [Requirement(line) for line in lines]


def environment(python: str) -> dict[str, str]:
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
    }


def write(folder: Path, text: str) -> Path:
    lock = folder / "some.txt"
    lock.write_text(text)
    return lock


def test_every_lock_and_every_group_is_known_here() -> None:
    assert {lock.stem for lock in locks()} == set(MADE_OF)
    used = {part for parts, _ in MADE_OF.values() for part in parts}
    assert set(PROJECT["dependency-groups"]) - used == UNLOCKED


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", MADE_OF)
def test_all_that_pyproject_asks_for_is_locked_within_its_bounds(
    name: str, python: str
) -> None:
    parts, first = MADE_OF[name]
    if Version(python) < Version(first):
        return
    where = environment(python)
    held = [pin for pin in read(FOLDER / f"{name}.txt") if pin.holds(where)]
    versions = {pin.name: pin.version for pin in held}

    assert len(held) == len(versions)
    for part in parts:
        for asked in asked_for(part):
            if asked.marker is None or asked.marker.evaluate(where):
                assert versions[canonicalize_name(asked.name)] in asked.specifier


def test_the_build_backend_is_locked_with_what_it_builds() -> None:
    [asked] = [Requirement(line) for line in PROJECT["build-system"]["requires"]]

    [locked] = [pin for pin in read(FOLDER / "run.txt") if pin.name == asked.name]

    assert locked.version in asked.specifier


@pytest.mark.parametrize("python", PYTHONS)
def test_what_several_locks_hold_is_the_same_in_each_but_for_django(
    python: str,
) -> None:
    held = defaultdict(set)
    for lock in locks():
        for pin in read(lock):
            if pin.name != "django" and pin.holds(environment(python)):
                held[pin.name].add((pin.version, pin.hashes))

    assert not {name: each for name, each in held.items() if len(each) > 1}


@pytest.mark.parametrize(
    "line",
    [
        "django==6.1",
        "django>=6.1 --hash=sha256:" + "0" * 64,
        "django==6.* --hash=sha256:" + "0" * 64,
        "django==6.1 --hash=md5:" + "0" * 32,
        "django @ https://example.com/django.whl --hash=sha256:" + "0" * 64,
        "--index-url https://example.com/simple",
        "-e .",
    ],
)
def test_anything_but_one_version_with_its_hashes_is_refused(
    line: str, tmp_path: Path
) -> None:
    lock = write(tmp_path, f"# a header\n{line}\n")

    with pytest.raises(ValueError, match=r"no hash|not one version"):
        read(lock)


def test_a_lock_names_no_address_and_no_folder() -> None:
    for lock in locks():
        assert not re.search(r"://|/(home|root|work|tmp)/", lock.read_text())


def test_make_takes_nothing_from_an_index_without_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = re.findall(r"^\t.*(?:\$\(PIP\)|pip install).*$", makefile, re.MULTILINE)

    assert installs == ["\t$(PIP) --no-deps --no-build-isolation --editable ."]
    assert "LOCKED := $(PIP) --require-hashes --only-binary :all:\n" in makefile
