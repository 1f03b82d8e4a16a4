"""What a worker logs of the end of an attempt: one record each, of relay.worker."""

from __future__ import annotations

import logging
import os
import time
import traceback
from datetime import timedelta
from types import TracebackType
from typing import Any, Final

from relay.conf import get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome, Settled, Written
from relay.exceptions import Cancelled
from relay.redaction import logged_arguments
from relay.sensitive import has_sealed
from relay.worker.verdict import reason_of

__all__ = ["formatted", "log_end", "log_failed_after_all", "log_start", "message_of"]

logger = logging.getLogger("relay.worker")

# Frames of files there are not shown at the top of a handler's traceback.
_OWN_FOLDER: Final = os.path.dirname(__file__) + os.sep

# Only the end of a job is an error: who is woken by errors need not hear of a retry.
# Source: docs/howto/report-failures.md.
_ENDINGS: Final = {
    "retry": (logging.WARNING, "job failed and will run again", "job.retrying"),
    "fail": (logging.ERROR, "job failed", "job.failed"),
    "cancel": (logging.INFO, "job cancelled", "job.cancelled"),
    "hand_back": (logging.WARNING, "job handed back", "job.handed_back"),
    "release": (logging.INFO, "job released", "job.released"),
    "snooze": (logging.INFO, "job put off", "job.snoozed"),
    "crash": (logging.WARNING, "job's process died", "job.crashed"),
}
_WITH_ERROR: Final = ("retry", "fail")


def log_start(job: ClaimedJob) -> None:
    """Log that an attempt begins; at DEBUG, as each is told of at its end."""
    fields = _fields(job, "job.started", time.monotonic())
    del fields["duration_s"]
    logger.debug("job started", extra=fields)


def log_end(
    job: ClaimedJob,
    outcome: Outcome,
    begun_at: float,
    error: BaseException | None = None,
    slow: timedelta | None = None,
) -> None:
    """Log how an attempt ended.

    Args:
        error: what the handler raised. Its values and frames may hold what the job was
            given: where some of that is sensitive, the record has the masked traceback
            as text instead.
        slow: an attempt that ran so long is told of as such, too.
    """
    if slow is not None:
        _log_slow(job, begun_at, slow.total_seconds())
    if isinstance(outcome, Completed):
        if logger.isEnabledFor(logging.INFO):
            logger.info("job completed", extra=_fields(job, "job.completed", begun_at))
        return
    if isinstance(outcome, Written):
        if outcome.result is not None:
            logger.info("job completed", extra=_fields(job, "job.completed", begun_at))
        return  # lost: whoever rolled it back has said so
    level, message, event = _ENDINGS[outcome.verb]
    if not logger.isEnabledFor(level):
        return
    extra: dict[str, Any] = {
        **_fields(job, event, begun_at),
        "error_class": outcome.error_class,
        "error": outcome.error_message,
        "reason": reason_of(outcome),
        "delay_s": outcome.delay_seconds,
    }
    exc_info = None
    if error is not None and outcome.verb in _WITH_ERROR:
        if has_sealed(job.args):
            extra["traceback"] = outcome.traceback
        else:
            exc_info = type(error), error, _handler_frames(error)
    logger.log(level, message, extra=extra, exc_info=exc_info)


def _log_slow(job: ClaimedJob, begun_at: float, threshold_s: float) -> None:
    fields = _fields(job, "job.slow", begun_at)
    if fields["duration_s"] >= threshold_s:
        logger.warning("job ran long", extra={**fields, "threshold_s": threshold_s})


def log_failed_after_all(job: ClaimedJob, outcome: Settled) -> None:
    """Log that a job will not run again although its attempt's end said so."""
    logger.error(
        "job failed",
        extra={
            "event": "job.failed",
            "job_id": str(job.id),
            "task": job.task,
            "queue": job.queue,
            "attempt": job.attempt,
            "error_class": outcome.error_class,
            "reason": reason_of(outcome) or "exception",
        },
    )


def _fields(job: ClaimedJob, event: str, begun_at: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "event": event,
        "job_id": str(job.id),
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "failures": job.failures,
        "max_retries": job.max_retries,
        "wait_s": job.wait_s,
        "duration_s": round(time.monotonic() - begun_at, 6),
    }
    if get_settings().log_args:
        fields["arguments"] = logged_arguments(job.task, job.args)
    return fields


def message_of(error: BaseException) -> str:
    """Return an error's message, also of one whose message cannot be had."""
    if isinstance(error, Cancelled):
        return "somebody cancelled the job while it ran"
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__} (its message cannot be shown)"


def formatted(error: BaseException) -> str:
    """Return the traceback from the handler's own frames down, without locals."""
    try:
        return "".join(
            traceback.format_exception(type(error), error, _handler_frames(error))
        )
    except Exception:
        return f"{type(error).__name__}: {message_of(error)}"


def _handler_frames(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and _is_own(frames):
        frames = frames.tb_next
    return frames


def _is_own(frames: TracebackType) -> bool:
    return frames.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER)
