"""How far a job is, as its handler tells it and as its row keeps it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from relay.exceptions import ArgumentError
from relay.packing import clean_text

__all__ = ["Progress", "measured", "read_progress"]

MESSAGE_LIMIT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        percent: from 0 to 100.
        done: how many of total, where the handler counts; else None.
        total: what done counts towards.
        message: what the handler says besides; "" if nothing.
    """

    percent: float
    done: float | None = None
    total: float | None = None
    message: str = ""

    def document(self) -> dict[str, Any]:
        """Return what is stored: nothing that says nothing."""
        found: dict[str, Any] = {"percent": self.percent}
        if self.total is not None:
            found |= {"done": self.done, "total": self.total}
        if self.message:
            found["message"] = self.message
        return found


def measured(done: float, total: float | None, message: str | None) -> Progress:
    """Return the progress that a handler tells.

    Raises:
        ArgumentError: a number is none, is negative or not finite.
    """
    _check("done" if total is not None else "percent", done)
    text = "" if message is None else clean_text(str(message), limit=MESSAGE_LIMIT)
    if total is None:
        return Progress(percent=_rounded(done), message=text)
    _check("total", total)
    percent = 100.0 if total == 0 else _rounded(100 * (done / total))
    return Progress(percent=percent, done=done, total=total, message=text)


def _rounded(percent: float) -> float:
    return round(min(float(percent), 100.0), 2)


def _check(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        if is_number and math.isfinite(value) and value >= 0:  # type: ignore[arg-type, operator] # is_number
            return
    except OverflowError:
        pass  # an integer beyond every float
    raise ArgumentError(f"{name}={value!r}: give a finite number, 0 or more")


def read_progress(text: str | None) -> Progress | None:
    """Return the progress in a row; None where there is none that can be read."""
    found = None if text is None else json.loads(text)
    if not isinstance(found, dict) or not _is_number(found.get("percent")):
        return None
    done, total, message = (found.get(name) for name in ("done", "total", "message"))
    is_counted = _is_number(done) and _is_number(total)
    return Progress(
        percent=float(found["percent"]),
        done=done if is_counted else None,
        total=total if is_counted else None,
        message=message if isinstance(message, str) else "",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
