"""Relay's tables in Django's admin: to look at, and to act on.

They are registered with Django's default site, unless RELAY["ADMIN"] is False: then
register() does it for any site, or a project makes classes of its own of the mixins.
"""

from django.contrib import admin

from relay.admin.audit import AuditAdminMixin
from relay.admin.bulk import BulkOperationAdminMixin
from relay.admin.jobs import JobAdminMixin
from relay.admin.occurrences import OccurrenceAdminMixin
from relay.admin.queues import QueueAdminMixin
from relay.admin.registration import register
from relay.admin.schedules import ScheduleAdminMixin
from relay.admin.tokens import ApiTokenAdminMixin
from relay.admin.workers import WorkerAdminMixin
from relay.conf import get_settings
from relay.exceptions import SettingsError

__all__ = [
    "ApiTokenAdminMixin",
    "AuditAdminMixin",
    "BulkOperationAdminMixin",
    "JobAdminMixin",
    "OccurrenceAdminMixin",
    "QueueAdminMixin",
    "ScheduleAdminMixin",
    "WorkerAdminMixin",
    "register",
]


def _is_wanted() -> bool:
    try:
        return get_settings().admin
    except SettingsError:  # which a check reports
        return True


if _is_wanted():
    register(admin.site)
