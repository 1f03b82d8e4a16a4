"""System checks: what manage.py check finds wrong in a project that uses relay.

Those of the database run only where --database names it, those of a deployment only
with --deploy. Source of each id, with its remedy: docs/reference/checks.md.
"""

from __future__ import annotations

from typing import Final

from django.core import checks

from relay.checks import code, configuration, databases, deployment, permissions
from relay.checks.database import check_database

__all__ = ["register"]

TAG: Final = "relay"
_STATIC: Final = (
    configuration.check_settings,
    configuration.check_backend,
    configuration.check_intervals,
    configuration.check_atomic_requests,
    configuration.check_pooler,
    configuration.check_pool_size,
    configuration.check_retention,
    configuration.check_time_zone,
    databases.check_routers,
    databases.check_autocommit,
    code.check_tasks,
    code.check_declared,
    code.check_sensitive,
    code.check_middleware,
    code.check_access,
    code.check_memory_limits,
    code.check_arguments,
    permissions.check_permissions,
)
# Only with --deploy: on a machine for development they are no fault.
_DEPLOYMENT: Final = (
    deployment.check_exposure,
    deployment.check_grace,
    deployment.check_metrics_folder,
    deployment.check_rate,
    deployment.check_transport,
    deployment.check_keys,
    configuration.check_kept_connections,
    configuration.check_test_mode,
)


def register() -> None:
    """Give the checks to Django; again is no harm."""
    for check in _STATIC:
        checks.register(check, TAG)
    for check in _DEPLOYMENT:
        checks.register(check, TAG, deploy=True)
    # Not under TAG too: with a tag given, Django 6.1 asks every database unasked.
    checks.register(check_database, checks.Tags.database)
