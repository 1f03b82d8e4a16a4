"""The locks of this folder, which make lock writes and make installs from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.version import Version

__all__ = ["FOLDER", "Pin", "locks", "read"]

FOLDER: Final = Path(__file__).resolve().parent
_HASHES: Final = re.compile(r"(?: --hash=sha256:[0-9a-f]{64})+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One version of a package, where its marker holds, and what its files hash to."""

    name: str
    version: Version
    marker: Marker | None
    hashes: tuple[str, ...]

    def holds(self, environment: Mapping[str, str]) -> bool:
        return self.marker is None or self.marker.evaluate(dict(environment))


def locks() -> list[Path]:
    """Return every lock."""
    return sorted(FOLDER.glob("*.txt"))


def read(lock: Path) -> list[Pin]:
    """Return a lock's pins.

    Raises:
        ValueError: a line is anything else than one version of a package of an index,
            with the hashes of its files.
    """
    return list(_pins(lock))


def _pins(lock: Path) -> Iterator[Pin]:
    text = lock.read_text(encoding="utf-8")
    for line in re.sub(r" \\\n *", " ", text).splitlines():
        if line.lstrip().startswith("#"):
            continue
        asked, separator, hashes = line.partition(" --hash=")
        if not _HASHES.fullmatch(separator + hashes):
            raise ValueError(f"{lock.name}: no hashes, or no hash of SHA-256: {line}")
        requirement = Requirement(asked)
        exactly = re.fullmatch(r"==([^*]+)", str(requirement.specifier))
        if requirement.url or not exactly:
            raise ValueError(f"{lock.name}: not one version of an index: {line}")
        yield Pin(
            name=requirement.name,
            version=Version(exactly[1]),
            marker=requirement.marker,
            hashes=tuple(re.findall(r"sha256:(\w+)", hashes)),
        )
