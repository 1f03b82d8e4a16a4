"""Nobody else's minified file comes without its hash, its licence and its version."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from requirements.bom import VENDORED
from requirements.locks import FOLDER

ROOT = FOLDER.parent
# Folders of what is made: none of it is in the repository.
MADE = {"__pycache__", "build", "dist", "out", "venv"}
OF_BROWSERS = {".js", ".mjs", ".cjs", ".css", ".wasm", ".map"}
# No line that somebody writes by hand is as long.
LONGEST = 500


def is_minified(file: Path) -> bool:
    if file.suffix not in OF_BROWSERS:
        return False
    lines = file.read_bytes().splitlines()
    return ".min." in file.name or any(len(line) > LONGEST for line in lines)


def minified(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [n for n in folders if n not in MADE and not n.startswith(".")]
        yield from (file for n in files if is_minified(file := Path(folder, n)))


def test_every_minified_file_is_the_one_that_was_released_under_its_licence() -> None:
    found = list(minified(ROOT))

    assert {"htmx.min.js", "axe.min.js"} <= {file.name for file in found}
    for file in found:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        stem = file.name.partition(".")[0]
        assert file.with_name(f"{file.name}.sha256").read_text().split() == [
            digest,
            file.name,
        ]
        assert len(file.with_name(f"{stem}.LICENSE").read_text()) > LONGEST


def test_those_in_the_wheel_are_in_its_bill_of_materials() -> None:
    in_wheel = {str(file.relative_to(ROOT)) for file in minified(ROOT / "relay")}
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()

    assert in_wheel == {each.path for each in VENDORED}
    for each in VENDORED:
        name = each.package.partition(".")[0]
        assert f"| {name} {each.version} ({each.licence}, " in page
        assert f'"{each.version}"' in (ROOT / each.path).read_text()


@pytest.mark.parametrize(
    ("name", "content", "is_seen"),
    [
        ("chart.min.js", "a", True),
        ("chart.js", "a" * 501, True),
        ("chart.css", "a\n" * 501, False),
        ("chart.json", "a" * 501, False),
    ],
)
def test_a_file_is_minified_by_its_name_or_its_lines(
    name: str, content: str, is_seen: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)

    assert bool(list(minified(tmp_path))) is is_seen
