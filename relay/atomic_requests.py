"""Views that the host's ATOMIC_REQUESTS leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections, transaction

__all__ = ["never_atomic"]

V = TypeVar("V", bound=Callable[..., Any])


def never_atomic(view: V) -> V:
    """Return a view that runs in no transaction of its request's, of no database.

    Without a name Django leaves out the default database alone, and jobs may be in
    another: a wait in a transaction would never see what it waits for.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view
