"""The form of schedules: spans as people write them, reasons where they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.forms.fields import InvalidJSONInput
from django.utils.duration import duration_string

from relay.admin.lists import NOTHING
from relay.models import Schedule

__all__ = [
    "SPANS",
    "ArgumentsField",
    "ScheduleForm",
    "SpanField",
    "as_shown",
    "as_span",
]

# Columns of milliseconds that the form shows as spans of time, with their labels.
SPANS: Final = {
    "every_ms": "every",
    "spread_ms": "spread",
    "success_within_ms": "success within",
    "catch_up_window_ms": "catch up window",
}

_MILLISECOND: Final = timedelta(milliseconds=1)
_NOT_SHOWN: Final = (
    "Some of it is masked or cut off: left empty, it stays as it is; otherwise write "
    'all of it anew, as {"args": [], "kwargs": {}}.'
)

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


def _span_of(name: str, label: str) -> Callable[[Schedule], str]:
    """Return what shows a column of milliseconds as a span."""

    @admin.display(description=label)
    def shown(schedule: Schedule) -> str:
        value = getattr(schedule, name)
        return NOTHING if value is None else str(as_span(value))

    shown.__name__ = name
    return shown


_SHOWN_AS: Final[dict[Any, Any]] = {
    "args": "arguments",
    **{name: _span_of(name, label) for name, label in SPANS.items()},
}


def as_shown(names: Iterable[Any]) -> tuple[Any, ...]:
    """Return the names of fields that are edited as those of what shows them."""
    return tuple(_SHOWN_AS.get(name, name) for name in names)


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

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        # Django would read it, and write it anew: a lone surrogate cannot be sent.
        return data if data is None or self.disabled else InvalidJSONInput(data)


class ScheduleForm(_ScheduleForm):
    """Shows the model's reasons; those about fields it leaves out, above the form.

    Arguments of which who edits may not see all stand in no form: they stay, or are
    given anew.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hides_args = getattr(self.instance, "hides_args", False)
        if self._hides_args and "args" in self.fields:
            self.initial["args"] = None
            self.fields["args"].required = False
            self.fields["args"].help_text = _NOT_SHOWN

    def clean_args(self) -> Any:
        value = self.cleaned_data["args"]
        return self.instance.args if value is None and self._hides_args else value

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
