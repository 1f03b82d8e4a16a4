"""What becomes of a job whose handler raised: nothing else decides."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import NamedTuple

from relay.conf import get_settings
from relay.engine.connection import is_outage
from relay.engine.expire import DEADLINE_EXCEEDED
from relay.engine.finish import Settled, Verb
from relay.exceptions import (
    Cancel,
    Cancelled,
    DecodeError,
    JobTimeout,
    MissingKey,
    Retry,
    SkipRetry,
    Snooze,
)
from relay.retry import NO_RULES, RetryRules

__all__ = ["Ruling", "judge", "reason_of", "timed_out", "verdict"]


class Ruling(NamedTuple):
    """What becomes of a job.

    Attributes:
        delay: before it is due again, if it is retried.
    """

    verb: Verb
    delay: timedelta = timedelta(0)


def verdict(
    error: BaseException,
    *,
    failures: int,
    max_retries: int,
    is_cancelled: bool = False,
    rules: RetryRules = NO_RULES,
) -> Verb:
    """Tell what becomes of a job whose handler raised, as judge() does."""
    ruling = judge(
        error,
        failures=failures,
        max_retries=max_retries,
        is_cancelled=is_cancelled,
        rules=rules,
    )
    return ruling.verb


def judge(
    error: BaseException,
    *,
    failures: int,
    max_retries: int,
    is_cancelled: bool = False,
    rules: RetryRules = NO_RULES,
) -> Ruling:
    """Tell what becomes of a job whose handler raised.

    What only the database can tell comes on top of it, in SETTLE: whether the job has
    been handed back or put off too often, or the time for retries is over.

    Args:
        failures: the job's earlier attempts that raised.
        is_cancelled: whether the job was asked to stop: then it never runs again.
        rules: what its task says.
    """
    if is_cancelled or isinstance(error, Cancel | Cancelled):
        return Ruling("cancel")
    if isinstance(error, Snooze):
        return Ruling("snooze", error.after)
    if is_outage(error) or isinstance(error, MissingKey):
        return Ruling("hand_back")
    if isinstance(error, SkipRetry | DecodeError) or failures >= max_retries:
        return Ruling("fail")  # arguments not readable today are not so tomorrow
    if isinstance(error, Retry):
        if error.after is not None:
            return Ruling("retry", error.after)
    elif rules.gives_up_on(error):
        return Ruling("fail")
    default = get_settings().backoff
    delay = rules.delay(failures + 1, error, default=default)
    return Ruling("fail") if delay is None else Ruling("retry", delay)


def timed_out(error: BaseException) -> BaseException:
    """Return what an attempt ended by whose timeout has passed: whatever it raised."""
    if isinstance(error, JobTimeout):
        return error
    made = JobTimeout().with_traceback(error.__traceback__)
    if not isinstance(error, asyncio.CancelledError):
        made.__cause__ = error
    return made


def reason_of(outcome: Settled) -> str | None:
    """Return in a word why an attempt has failed; None if it has not.

    For logs, and for relay_job_errors_total.
    """
    if outcome.verb == "crash":
        return "killed"
    if outcome.verb not in ("retry", "fail"):
        return None
    if outcome.error_class == JobTimeout.__name__:
        return "timeout"
    return "deadline" if outcome.error_class == DEADLINE_EXCEEDED else "exception"
