"""Empty the tables after a test that committed.

Django's flush truncates every table with all its indexes, and makes the permissions
anew: a quarter of a second, most of which is for tables that hold nothing.
"""

from __future__ import annotations

from typing import Any, Final

from django.db import connections
from django.test import TransactionTestCase

__all__ = ["use"]

# What migrate writes, and no test changes.
KEPT: Final = ["auth_permission", "django_content_type", "django_migrations"]
# A table whose rows were rolled back or deleted has pages all the same, and plans that
# tests judge would count them.
FILLED: Final = """
SELECT string_agg(oid::regclass::text, ', ')
FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
  AND relname <> ALL (%s) AND pg_relation_size(oid) > 0
"""


def use() -> None:
    """Have every test that is not rolled back end so, in place of Django's flush."""
    TransactionTestCase._fixture_teardown = _empty  # type: ignore[attr-defined] # Django's own hook


def _empty(test: Any) -> None:
    for alias in test._databases_names(include_mirrors=False):
        with connections[alias].cursor() as cursor:
            cursor.execute(FILLED, [KEPT])
            [filled] = cursor.fetchone()
            if filled is not None:
                cursor.execute(f"TRUNCATE {filled} CASCADE")
