"""Forms of what an operation is asked for, with the widgets of the admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.db import models

from relay.admin.schedule_form import ArgumentsField
from relay.exceptions import RelayError

__all__ = ["ActForm"]

# The column whose widget of the admin, Django's or another's, a field takes.
_KINDS: Final[tuple[tuple[type[forms.Field], type[models.Field[Any, Any]]], ...]] = (
    (ArgumentsField, models.TextField),
    (forms.SplitDateTimeField, models.DateTimeField),
    (forms.IntegerField, models.IntegerField),
)
# These keep their own.
_PLAIN: Final = (forms.BooleanField, forms.MultipleChoiceField)


class ActForm(forms.Form):
    """What an operation takes. It writes nothing by itself.

    Args:
        widgets: the admin's, by the class of the column.
    """

    def __init__(
        self, *args: Any, widgets: Mapping[Any, Mapping[str, Any]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if isinstance(field, _PLAIN):
                continue
            found = [column for kind, column in _KINDS if isinstance(field, kind)]
            column = getattr(field, "column", found[0] if found else models.CharField)
            widget = widgets[column]["widget"]()
            widget.is_required = field.required
            if name in ("task", "queue"):
                widget.attrs["list"] = f"relay-{name}s"
            field.widget = widget

    def refuse(self, error: RelayError) -> None:
        """Say what the operation has refused, at the field that it speaks of."""
        text = str(error)
        name = text.partition("=")[0].partition("[")[0]
        self.add_error(name if name in self.fields else None, text)
