"""The REST API under /v1, of Django REST framework (extra api).

Mounted by include("relay.urls"). What each address takes and answers:
docs/reference/rest.md, and /v1/docs of a running project.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["is_available"]


def is_available() -> bool:
    """Tell whether Django REST framework is installed."""
    return find_spec("rest_framework") is not None
