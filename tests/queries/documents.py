"""Whether a document has the fields that its type says, and JSON can carry it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["check"]


def check(document: Any, kind: Any, *, include: tuple[str, ...] = ()) -> None:
    assert document.keys() == kind.__required_keys__ | set(include)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
