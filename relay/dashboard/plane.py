"""The plane that charts are drawn on, in units of their SVG."""

from __future__ import annotations

from typing import Final

__all__ = ["BASE", "HEIGHT", "LEFT", "TOP", "WIDTH"]

WIDTH: Final = 640
HEIGHT: Final = 180
# Of the plane: what is left for the words around it.
LEFT: Final = 60
TOP: Final = 14
BASE: Final = 152
