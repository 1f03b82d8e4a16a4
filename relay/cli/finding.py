"""What people write for an id, completed: at least its beginning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from relay.cli.errors import MissingError, UsageError
from relay.cli.printer import Document
from relay.cli.transport import Transport

__all__ = ["job_id", "one_of", "whole_id"]

SHORTEST: Final = 8
_LISTED: Final = 10
_BEGINNING: Final = re.compile(r"[0-9a-f-]{8,36}", re.IGNORECASE)


def job_id(transport: Transport, text: str) -> str:
    """Return the whole id of the job whose id begins like this.

    Raises:
        MissingError: there is none.
        UsageError: there are several, or it is no id.
    """
    text = text.strip()  # of a file with Windows' ends of lines
    if (whole := whole_id(text)) is not None:
        return whole
    _check(text, "job")
    page = transport.list_jobs(f"id:{text}", limit=_LISTED + 1, cursor=None)
    found = page["results"]
    return str(_only(found, text, "job")["id"])


def one_of(documents: Iterable[Document], text: str, what: str) -> Document:
    """Return the one document whose id begins like this, or the first of this name.

    Raises:
        MissingError, UsageError: as job_id.
    """
    text = text.strip()
    listed = list(documents)
    whole = whole_id(text) or text
    for each in listed:  # of one name the first: lists have the newest there
        if whole in (each["id"], each.get("name")):
            return each
    if _BEGINNING.fullmatch(text) is None and any("name" in each for each in listed):
        raise MissingError(f"no {what} has the name {text!r}, nor an id like it")
    _check(text, what)
    found = [each for each in listed if str(each["id"]).startswith(text.lower())]
    return _only(found, text, what)


def whole_id(text: str) -> str | None:
    """Return an id as relay writes it; None if it is no whole one."""
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return None


def _check(text: str, what: str) -> None:
    if _BEGINNING.fullmatch(text) is None:
        raise UsageError(
            f"{text!r} is no {what}'s id: give it whole, or at least its first "
            f"{SHORTEST} characters"
        )


def _only(found: list[Document], text: str, what: str) -> Document:
    if not found:
        raise MissingError(f"no {what} has an id that begins with {text!r}")
    if len(found) == 1:
        return found[0]
    ids = [str(each["id"]) for each in found]
    lines = [f"  {_told(each)}" for each in found[:_LISTED]]
    raise UsageError(
        f"{text!r} begins the ids of several {what}s; give more of it, or the whole:",
        data={"ids": ids},
        lines=[*lines, *(["  …"] if len(found) > _LISTED else [])],
    )


def _told(document: Document) -> str:
    """Return an id and what it is of."""
    names = ("id", "state", "task", "name", "action", "created_at")
    return "  ".join(str(document[name]) for name in names if document.get(name))
