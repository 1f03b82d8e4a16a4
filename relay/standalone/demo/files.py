"""Which files of a folder the demo works on. Only reads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from relay.exceptions import StandaloneError
from relay.standalone.demo.terminal import printable

__all__ = ["SAMPLES", "Files", "find_files"]

SAMPLES: Final = Path(__file__).resolve().parent / "samples"
# A demo that hashes films all day shows nothing more.
LARGEST_FILE_BYTES: Final = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What was found.

    Attributes:
        found: how many files the folder has, hidden ones aside.
        images: those of taken that Pillow opens.
    """

    folder: Path
    found: int
    taken: tuple[Path, ...]
    images: frozenset[Path]


def find_files(folder: Path, *, limit: int, tell: Callable[[str], None]) -> Files:
    """Return the first files of the folder by name; tell which are left out, and why.

    Raises:
        StandaloneError: it is no folder, cannot be read or has no file to work on.
    """
    names = _names(folder)
    taken: list[Path] = []
    for name in names:
        trouble = _trouble(folder / name)
        if trouble is not None:
            tell(f"{printable(name)} is left out: {trouble}")
        elif len(taken) < limit:
            taken.append(folder / name)
    if not taken:
        raise StandaloneError(
            f"{folder} has no file that can be read: name a folder with some, or leave "
            "--folder out to use the demo's own (subfolders and hidden files do not "
            "count)"
        )
    images = frozenset(path for path in taken if _is_image(path))
    return Files(folder=folder, found=len(names), taken=tuple(taken), images=images)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_file()
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise StandaloneError(f"--folder {folder} cannot be used: {reason}") from error


def _trouble(path: Path) -> str | None:
    try:
        path.name.encode()
        with path.open("rb"):
            size_bytes = path.stat().st_size
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except OSError as error:
        return error.strerror or str(error)
    if size_bytes > LARGEST_FILE_BYTES:
        return f"it has {size_bytes // 1_000_000} MB; the demo takes up to 200"
    return None


def _is_image(path: Path) -> bool:
    """Tell whether Pillow knows the format and takes the size; decodes no pixels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path):
                return True
    except (
        OSError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ):
        return False
