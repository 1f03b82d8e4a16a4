"""The form of schedules: spans as people write them, reasons where they belong."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.forms.fields import InvalidJSONInput
from django.utils.duration import duration_string

from relay.models import Schedule

__all__ = ["SPANS", "ArgumentsField", "ScheduleForm", "SpanField", "as_span"]

# Columns of milliseconds that the form shows as spans of time, with their labels.
SPANS: Final = {
    "every_ms": "every",
    "spread_ms": "spread",
    "success_within_ms": "success within",
    "catch_up_window_ms": "catch up window",
}

_MILLISECOND: Final = timedelta(milliseconds=1)

if TYPE_CHECKING:
    _ScheduleForm = forms.ModelForm[Schedule]
else:
    _ScheduleForm = forms.ModelForm


def as_span(milliseconds: int) -> timedelta | int:
    """Return the span; what Python cannot hold stays a number."""
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


class SpanField(forms.DurationField):
    """Milliseconds in the row, written as 45, 10:00, 06:00:00 or 1 00:00:00."""

    widget = AdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return super().prepare_value(value)
        span = as_span(value)
        return span if isinstance(span, int) else duration_string(span)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, int):
            return value
        span = super().to_python(value)
        return None if span is None else span // _MILLISECOND

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


class ArgumentsField(forms.JSONField):
    """Refuses, where Django fails, what cannot be read; shows again what was typed."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (RecursionError, ValueError) as error:
            raise ValidationError(
                "Too deep, or with too long a number, to be read.", code="unreadable"
            ) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        # Django would read it, and write it anew: a lone surrogate cannot be sent.
        return data if data is None or self.disabled else InvalidJSONInput(data)


class ScheduleForm(_ScheduleForm):
    """Shows the model's reasons; those about fields it leaves out, above the form."""

    def add_error(self, field: str | None, error: Any) -> None:
        if field is None and hasattr(error, "error_dict"):
            for name, reasons in error.error_dict.items():
                if name == NON_FIELD_ERRORS or name in self.fields:
                    super().add_error(name, reasons)
                else:
                    text = "; ".join(ValidationError(reasons).messages)
                    super().add_error(None, f"{name}: {text}")
        else:
            super().add_error(field, error)
