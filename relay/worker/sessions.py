"""The connections of handlers: kept over many jobs, and cleaned between two of them."""

from __future__ import annotations

import logging

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from relay.worker import statements

__all__ = ["clean_connections", "close_for_forks", "keep_connections"]

logger = logging.getLogger("relay.worker")


def close_for_forks() -> None:
    """Close all that two processes would share after a fork, pools too."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        close_pool = getattr(connection, "close_pool", None)
        if close_pool is not None:
            close_pool()


def keep_connections() -> None:
    """Keep each slot's connections over many jobs, checked before they are used.

    A project's CONN_MAX_AGE of 0 is made for requests: a job would reconnect each
    time. Connections from a pool of Django's are left to the pool.
    """
    for alias in connections:
        options = connections.settings[alias]
        options["CONN_HEALTH_CHECKS"] = True
        if options["CONN_MAX_AGE"] == 0 and not options["OPTIONS"].get("pool"):
            options["CONN_MAX_AGE"] = None


def clean_connections() -> None:
    """Close what a job left unusable; forget its queries.

    Django closes a connection here that is obsolete, and checks one that is not on
    its next use. One left inside a transaction is closed: the next job must neither
    join it nor wait for it. Those that stay are given the limit of the job that runs
    here, or their own back: see statements.py.
    """
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()
        if connection.connection is not None and _is_in_transaction(connection):
            logger.warning(
                "a job left a transaction open: rolled back",
                extra={"event": "job.open_transaction", "database": connection.alias},
            )
            connection.close()
            del connections[connection.alias]
        else:
            connection.close_if_unusable_or_obsolete()
            if statements.are_limited():
                statements.bring(connection)


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether a transaction is open, be it one that Django knows nothing of."""
    if connection.in_atomic_block:
        return True
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return True
    session = connection.connection
    return isinstance(
        session, psycopg.Connection
    ) and session.info.transaction_status in (
        TransactionStatus.ACTIVE,  # cut off in the middle of a query
        TransactionStatus.INTRANS,
        TransactionStatus.INERROR,
    )
