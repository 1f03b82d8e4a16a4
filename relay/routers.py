"""RelayRouter: for DATABASE_ROUTERS of a project with several databases."""

from __future__ import annotations

from typing import Any, ClassVar

from relay.conf import get_settings

__all__ = ["RelayRouter"]


class RelayRouter:
    """Keeps relay's models on the alias RELAY["DATABASE"], reads and migrations too.

    It stands first in DATABASE_ROUTERS, before one that spreads reads over replicas: a
    replica lags behind, and a job that was just enqueued is not there yet. Of other
    models it says nothing.

    Attributes:
        app_labels: the apps that it speaks for.
    """

    app_labels: ClassVar[frozenset[str]] = frozenset({"relay"})

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self._alias(model._meta.app_label)

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self._alias(model._meta.app_label)

    def allow_relation(self, obj1: Any, obj2: Any, **hints: Any) -> bool | None:
        labels = {obj1._meta.app_label, obj2._meta.app_label}
        return True if labels <= self.app_labels else None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        alias = self._alias(app_label)
        return None if alias is None else db == alias

    def _alias(self, app_label: str) -> str | None:
        return get_settings().database if app_label in self.app_labels else None
