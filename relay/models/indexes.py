"""Kinds of indexes that Django has only as a part of django.contrib.postgres."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

__all__ = ["GinIndex"]


class GinIndex(models.Index):
    """An index over the elements of arrays.

    Django's own asks, from 6.1 on, for django.contrib.postgres among the installed apps
    of every project.
    """

    suffix = "gin"

    def create_sql(
        self,
        model: type[models.Model],
        schema_editor: BaseDatabaseSchemaEditor,
        using: str = "",
        **kwargs: Any,
    ) -> Statement:
        using = using or f" USING {self.suffix}"
        return super().create_sql(model, schema_editor, using=using, **kwargs)
