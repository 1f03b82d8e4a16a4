"""What is built: the same bytes anywhere, all of relay and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from requirements.bom import BOM, VENDORED, text
from requirements.locks import FOLDER

ROOT = FOLDER.parent


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


def build(root: Path, into: Path) -> Built:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(into)],
        cwd=root,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "PYTHONPATH": ""},
        check=True,
        capture_output=True,
    )
    [sdist] = into.glob("*.tar.gz")
    [wheel] = into.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def sources(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the sdist unpacks to."""
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(built.sdist) as archive:
        # The first releases of Python 3.11 have no filters, and take no argument of it.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    [root] = folder.iterdir()
    return root


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def bill() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text())
    return read


@pytest.mark.slow
def test_the_sdist_builds_the_same_bytes_elsewhere_and_later(
    built: Built, sources: Path, tmp_path: Path
) -> None:
    again = build(sources, tmp_path)

    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    assert again.wheel.read_bytes() == built.wheel.read_bytes()


@pytest.mark.slow
def test_the_wheel_holds_all_of_relay_and_nothing_else(built: Built) -> None:
    held = names(built.wheel)
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "relay").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in held if ".dist-info/" not in name} == files
    assert {
        "relay/py.typed",
        "relay/migrations/0001_initial.py",
        "relay/locale/de/LC_MESSAGES/django.mo",
        "relay/static/relay/dashboard/relay.css",
        "relay/templates/relay/dashboard/base.html",
    } <= files


@pytest.mark.slow
def test_the_sdist_holds_nothing_of_tests_and_measurements(sources: Path) -> None:
    held = {path.name for path in sources.iterdir()}

    assert held == {
        *(".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"),
        *("docs", "relay", "requirements"),
    }
    assert [path.name for path in (sources / "requirements").iterdir()] == [BOM.name]


@pytest.mark.slow
def test_the_bill_of_materials_is_in_the_wheel_and_names_all_that_it_asks_for(
    built: Built,
) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        [folder] = {
            n.partition("/")[0] for n in archive.namelist() if ".dist-info" in n
        }
        content = archive.read(f"{folder}/sboms/{BOM.name}").decode()
        metadata = archive.read(f"{folder}/METADATA").decode()

    components = json.loads(content)["components"]
    asked = re.findall(r"^Requires-Dist: ([\w-]+)", metadata, re.MULTILINE)
    assert content == text()
    assert {each["name"] for each in components if "isExternal" in each} == set(asked)


def test_the_bill_of_materials_is_made_of_what_there_is() -> None:
    assert BOM.read_text() == text(), "python -m requirements.bom"


def test_the_bill_tells_ranges_of_what_is_asked_for_and_hashes_of_what_is_inside() -> (
    None
):
    components = {each["name"]: each for each in bill()["components"]}

    django, tzdata, htmx = (components[n] for n in ("django", "tzdata", "htmx.org"))
    assert (django["versionRange"], django["scope"]) == (
        "vers:pypi/>=5.2|<6.2",
        "required",
    )
    assert "version" not in django
    assert tzdata["versionRange"] == "vers:pypi/*"
    assert components["cryptography"]["scope"] == "optional"
    sha256 = (ROOT / VENDORED[0].path).with_suffix(".js.sha256").read_text().split()[0]
    assert htmx["hashes"] == [{"alg": "SHA-256", "content": sha256}]


def test_the_bill_is_of_this_version_and_leads_to_all_of_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    made = bill()
    [tree] = made["dependencies"]

    assert made["metadata"]["component"]["version"] == project["version"]
    assert tree["ref"] == made["metadata"]["component"]["bom-ref"]
    assert tree["dependsOn"] == [each["bom-ref"] for each in made["components"]]
    assert len(set(tree["dependsOn"])) == len(tree["dependsOn"])
