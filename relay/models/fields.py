"""Columns of a type that Django has no field for without its PostgreSQL app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import ArrayField
from django.core.checks import CheckMessage

__all__ = ["PlainArrayField"]

if TYPE_CHECKING:
    _ArrayField = ArrayField[Any, Any]
else:
    _ArrayField = ArrayField


class PlainArrayField(_ArrayField):
    """An array that does not ask for django.contrib.postgres in INSTALLED_APPS.

    That app registers hstore, ranges and lookups on texts; arrays use none of them.
    """

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        found = super().check(**kwargs)
        return [message for message in found if message.id != "postgres.E005"]
