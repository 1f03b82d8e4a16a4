"""Fields of bodies: instants, spans of time, and objects without unknown names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils.dateparse import parse_datetime
from rest_framework import serializers

__all__ = [
    "AnyField",
    "Body",
    "ChoiceField",
    "InstantField",
    "SpanField",
    "TextField",
    "WholeField",
    "read_span",
]

_GO: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|w|d|h|m|s))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|w|d|h|m|s)", re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_SECONDS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_LONGEST_TEXT: Final = 40


def read_span(value: object) -> timedelta:
    """Return a span: seconds as a number, 30s, 1h30m, 500ms, or PT1H30M of ISO 8601.

    Raises:
        ValueError: it is none.
    """
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds):
        raise ValueError("give seconds, or a text such as 30s, 1h30m or PT90S")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("give a shorter span") from None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e15 else math.inf
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        return None
    if _GO.fullmatch(value):
        return sum(
            float(number) * _SECONDS[unit] for number, unit in _PART.findall(value)
        )
    found = _ISO.fullmatch(value)
    if found is None or not any(found.groups()):
        return None
    parts = zip(("w", "d", "h", "m", "s"), found.groups(), strict=True)
    return sum(float(number or 0) * _SECONDS[unit] for unit, number in parts)


class SpanField(serializers.Field[timedelta, Any, float, Any]):
    """A span of time, as read_span() reads it."""

    default_error_messages = {"invalid": "{reason}"}  # noqa: RUF012 - as DRF's fields

    def to_internal_value(self, data: Any) -> timedelta:
        """Return the span."""
        try:
            return read_span(data)
        except ValueError as error:
            self.fail("invalid", reason=str(error))

    def to_representation(self, value: timedelta) -> float:
        """Return it in seconds."""
        return value.total_seconds()


class InstantField(serializers.Field[datetime, Any, str, Any]):
    """An instant as RFC 3339 writes it, with its zone."""

    default_error_messages = {  # noqa: RUF012 - as DRF's fields
        "invalid": "give a time with its zone, such as 2026-11-30T08:00:00Z"
    }

    def to_internal_value(self, data: Any) -> datetime:
        """Return the instant in UTC."""
        found = None
        if isinstance(data, str) and data.isascii():
            try:
                found = parse_datetime(data)
            except ValueError:
                found = None
        if found is None or found.utcoffset() is None:
            self.fail("invalid")
        try:
            return found.astimezone(UTC)
        except OverflowError:
            self.fail("invalid")

    def to_representation(self, value: datetime) -> str:
        """Return it in UTC."""
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class AnyField(serializers.Field[Any, Any, Any, Any]):
    """Whatever JSON can hold."""

    def to_internal_value(self, data: Any) -> Any:
        """Return it."""
        return data

    def to_representation(self, value: Any) -> Any:
        """Return it."""
        return value


class TextField(serializers.CharField):
    """A text, and no number that stands for one; kept as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Return the text."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class WholeField(serializers.IntegerField):
    """A whole number, and no text that stands for one."""

    def to_internal_value(self, data: Any) -> int:
        """Return the number."""
        is_whole = isinstance(data, float) and data.is_integer()
        if isinstance(data, bool) or not (isinstance(data, int) or is_whole):
            self.fail("invalid")
        return super().to_internal_value(int(data))


class ChoiceField(serializers.ChoiceField):
    """One of some texts; an error names them."""

    def __init__(self, choices: Sequence[str], **options: Any) -> None:
        super().__init__(choices, **options)
        known = ", ".join(choices)
        self.error_messages["invalid_choice"] = f'"{{input}}" is none of {known}'


class Body(serializers.Serializer[Any]):
    """A JSON object; a name that it does not have is an error."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the values by name."""
        if isinstance(data, Mapping) and (unknown := set(data) - set(self.fields)):
            known = ", ".join(self.fields)
            message = (
                f"unknown: there are {known}" if known else "unknown: leave it out"
            )
            raise serializers.ValidationError(
                {name: [message] for name in sorted(unknown)}, code="unknown"
            )
        return super().to_internal_value(data)
