"""The bill of materials in the wheel, in CycloneDX: python -m requirements.bom.

It tells what is in the wheel, with version and hash, and what the wheel asks for, with
the range of versions that it takes: which is installed is not in the wheel's hands.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from requirements.locks import FOLDER

__all__ = ["BOM", "VENDORED", "Vendored", "main", "text"]

BOM: Final = FOLDER / "relay.cdx.json"
_ROOT: Final = FOLDER.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendored:
    """A file of somebody else's in the wheel, as released in a package of npm."""

    path: str
    package: str
    version: str
    licence: str


VENDORED: Final = (
    Vendored(
        path="relay/static/relay/dashboard/htmx.min.js",
        package="htmx.org",
        version="4.0.1",
        licence="0BSD",
    ),
)


def text() -> str:
    """Return the bill of what pyproject.toml and the vendored files say."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    relay = {
        **_component("pypi", project["name"], project["version"]),
        "licenses": [{"license": {"id": project["license"]}}],
    }
    always = [Requirement(line) for line in project["dependencies"]]
    extras = project["optional-dependencies"].values()
    optional = [Requirement(line) for lines in extras for line in lines]
    # The extra all asks for the others.
    optional = [each for each in optional if each.name != project["name"]]
    components = [
        *(_contained(each) for each in VENDORED),
        *(_asked_for(each, "required") for each in always),
        *(_asked_for(each, "optional") for each in optional),
    ]
    refs = [each["bom-ref"] for each in components]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {"component": relay},
        "components": components,
        "dependencies": [{"ref": relay["bom-ref"], "dependsOn": refs}],
    }
    return json.dumps(bom, indent=2) + "\n"


def _component(kind: str, name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }


def _contained(vendored: Vendored) -> dict[str, Any]:
    digest = hashlib.sha256((_ROOT / vendored.path).read_bytes()).hexdigest()
    return {
        **_component("npm", vendored.package, vendored.version),
        "licenses": [{"license": {"id": vendored.licence}}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _asked_for(requirement: Requirement, scope: str) -> dict[str, Any]:
    name = canonicalize_name(requirement.name)
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "versionRange": _range(requirement.specifier),
        "scope": scope,
        "purl": f"pkg:pypi/{name}",
        "isExternal": True,
    }


def _range(specifiers: SpecifierSet) -> str:
    """Return it as a URL of the kind vers: bounds in the order of versions."""
    bounds = sorted(specifiers, key=lambda each: Version(each.version))
    return "vers:pypi/" + ("|".join(map(str, bounds)) or "*")


def main() -> None:
    """Write it."""
    BOM.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
