"""Which release is installed here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

__all__ = ["installed_version"]

_DISTRIBUTION: Final = "django-relay"


def installed_version() -> str:
    """Return it; unknown in a checkout that is not installed."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
