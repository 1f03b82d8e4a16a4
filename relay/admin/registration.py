"""Which pages relay has in an admin, and their registration."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.db import models
from django.utils.module_loading import import_string

from relay.admin.audit import AuditAdminMixin
from relay.admin.bulk import BulkOperationAdminMixin
from relay.admin.jobs import JobAdminMixin
from relay.admin.lists import RelayAdmin
from relay.admin.occurrences import OccurrenceAdminMixin
from relay.admin.queues import QueueAdminMixin
from relay.admin.schedules import ScheduleAdminMixin
from relay.admin.tokens import ApiTokenAdminMixin
from relay.admin.workers import WorkerAdminMixin
from relay.models import (
    ApiToken,
    Audit,
    BulkOperation,
    Job,
    Occurrence,
    Queue,
    Schedule,
    Worker,
)

__all__ = ["PAGES", "register"]

PAGES: Final[dict[type[models.Model], type[RelayAdmin]]] = {
    Job: JobAdminMixin,
    Queue: QueueAdminMixin,
    Worker: WorkerAdminMixin,
    Schedule: ScheduleAdminMixin,
    Occurrence: OccurrenceAdminMixin,
    BulkOperation: BulkOperationAdminMixin,
    ApiToken: ApiTokenAdminMixin,
    Audit: AuditAdminMixin,
}


def register(
    site: AdminSite, *, base: type[admin.ModelAdmin[Any]] | None = None
) -> None:
    """Register all of relay's models with an admin site.

    Args:
        base: what the pages are made of besides relay's mixins. Unless given,
            django-unfold's ModelAdmin where that is installed, and else Django's.

    Raises:
        django.contrib.admin.exceptions.AlreadyRegistered: the site has one of them.
    """
    made_of = base or _installed_base()
    for model, mixin in PAGES.items():
        name = f"{model.__name__}Admin"
        site.register(model, type(name, (mixin, made_of), {"__module__": __name__}))


def _installed_base() -> type[admin.ModelAdmin[Any]]:
    if apps.is_installed("unfold"):
        found: type[admin.ModelAdmin[Any]] = import_string("unfold.admin.ModelAdmin")
        return found
    return admin.ModelAdmin
