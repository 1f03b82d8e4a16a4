"""How many jobs one caller may submit: a bucket each, off unless settings fill it."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Final

from django.core.cache import cache

from relay.api.problems import ProblemError
from relay.conf import get_settings

__all__ = ["allow_submit"]

_KEY: Final = "relay:submit:"


def allow_submit(caller: str, count: int) -> None:
    """Let a caller submit so many jobs, or say when they may.

    The buckets are in Django's default cache: with one that processes share they are
    the same everywhere. Two requests at the same instant may count as one.

    Raises:
        ProblemError: it is too many now.
    """
    settings = get_settings().api
    rate = settings.submit_rate
    if rate is None:
        return
    now = time.time()
    key = _KEY + hashlib.sha256(caller.encode()).hexdigest()
    # The instant at which the bucket is full again; each job puts it off.
    full_at = max(now, float(cache.get(key) or now)) + count / rate
    wait_seconds = full_at - now - settings.submit_burst / rate
    if wait_seconds > 0 and count <= settings.submit_burst:
        raise ProblemError(
            "too_many_requests",
            f"{rate:,} jobs a second, and {settings.submit_burst:,} at once, are what "
            "one caller may submit.",
            headers={
                "Retry-After": str(math.ceil(wait_seconds)),
                "RateLimit-Policy": f'"submit";q={settings.submit_burst};w='
                f"{math.ceil(settings.submit_burst / rate)}",
                "RateLimit": f'"submit";r=0;t={math.ceil(wait_seconds)}',
            },
        )
    if wait_seconds > 0:
        raise ProblemError(
            "too_many_requests",
            f"{count:,} jobs at once are more than the {settings.submit_burst:,} that "
            "one caller may ever submit: send fewer.",
        )
    cache.set(key, full_at, timeout=math.ceil(full_at - now) + 1)
