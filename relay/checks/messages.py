"""What a message of a check looks like, and the settings that checks read."""

from __future__ import annotations

from typing import Final

from django.core.checks import CheckMessage, Error, Warning

from relay.conf import Settings, get_settings
from relay.exceptions import SettingsError

__all__ = ["error", "readable_settings", "warning"]

PAGE: Final = "docs/reference/checks.md"


def error(number: str, text: str, hint: str, obj: object = None) -> CheckMessage:
    return Error(text, hint=f"{hint} See {PAGE}.", obj=obj, id=f"relay.{number}")


def warning(number: str, text: str, hint: str, obj: object = None) -> CheckMessage:
    return Warning(text, hint=f"{hint} See {PAGE}.", obj=obj, id=f"relay.{number}")


def readable_settings() -> Settings | None:
    """Return the settings; None where they cannot be read, which E005 reports."""
    try:
        return get_settings()
    except SettingsError:
        return None
