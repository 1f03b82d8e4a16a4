"""More aliases in DATABASES while a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections

__all__ = ["alias"]


@contextmanager
def alias(name: str, **changes: Any) -> Iterator[str]:
    """Add an alias with default's settings but for changes; close it afterwards.

    Without changes it is the same database over connections of its own, and so has
    transactions of its own.
    """
    connections.settings[name] = {**connection.settings_dict, **changes}
    try:
        yield name
    finally:
        connections[name].close()
        del connections[name]
        del connections.settings[name]
