"""What somebody may have meant who gave a name that there is not."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

__all__ = ["meant", "nearest", "unknown"]

# A longer name than any of ours is no slip, and would be compared for long.
_LONGEST: Final = 100
_ALIKE: Final = 0.6


def nearest(name: object, known: Iterable[str], *, alike: float = _ALIKE) -> str | None:
    """Return the name that is most like another one; None where none is near.

    Args:
        alike: how much a name has to be like another, 0 to 1.
    """
    found = get_close_matches(str(name)[:_LONGEST], known, n=1, cutoff=alike)
    return found[0] if found else None


def meant(name: object, known: Iterable[str], *, alike: float = _ALIKE) -> str:
    """Return " (did you mean priority?)", or nothing where no name is near."""
    found = nearest(name, known, alike=alike)
    return "" if found is None else f" (did you mean {found}?)"


def unknown(names: Iterable[object], known: Collection[str]) -> str:
    """Return names that there are not, with what was meant, and all that there are."""
    said = ", ".join(f"{name}{meant(name, known)}" for name in sorted(names, key=str))
    return f"{said}: there are {', '.join(sorted(known))}"
