"""Figures that many look at, read once for all who may see the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.http import HttpRequest

from relay.conf import get_settings
from relay.operations import Actor

__all__ = ["forget", "shared"]

T = TypeVar("T")

# How long what one has read is shown to others.
SECONDS: Final = 2.0

# By database, permissions and name: until when it is shown, and what was read.
_kept: dict[tuple[str, Any, str], tuple[float, Any]] = {}


def shared(
    request: HttpRequest,
    actor: Actor,
    name: str,
    read: Callable[[], T],
    *,
    steady: float = 0,
) -> T:
    """Return what read() does, up to two seconds old where a page renews itself.

    It is shared in this process by those who have the same permissions: nothing else
    may bear on what read() returns. For who opens a page, as after an act, it is read
    anew.

    Args:
        steady: for how many seconds it is shown to who opens a page too, for what
            hardly ever changes.
    """
    key = (get_settings().database, actor.permissions, name)
    now = time.monotonic()
    until, found = _kept.get(key, (now, None))
    if now < until and (steady or "part" in request.GET):
        return found  # type: ignore[no-any-return] # the same name, the same type
    found = read()
    for old in [each for each, (end, _) in _kept.copy().items() if end <= now]:
        _kept.pop(old, None)
    _kept[key] = (now + max(SECONDS, steady), found)
    return found


def forget() -> None:
    """Forget all of it: what is asked for next is read anew."""
    _kept.clear()
