"""What has happened to one job: attempts, logs, steps, and one merged history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import models

from relay.models import Attempt, History, Output, Step, Worker
from relay.queries.documents import (
    AttemptDocument,
    HistoryDocument,
    LogDocument,
    StepDocument,
)
from relay.queries.reading import (
    clamped,
    cut,
    instant,
    payload,
    seconds,
    shown_text,
    text_id,
    texted,
)

__all__ = ["attempts_of", "history_of", "logs_of", "steps_of"]

# Of attempts, logs, steps and events so many of the latest are returned.
LATEST: Final = 1_000
LATEST_TEXTS: Final = 100

# What the row of an attempt that ended badly is called where it alone says so.
_ENDINGS: Final = ("completed", "failed", "cancelled")


def attempts_of(job: dict[str, Any], using: str) -> list[AttemptDocument]:
    """Return the latest attempts, the first one first.

    Args:
        job: its row, as jobs reads it. The attempt that runs, or succeeded, has no row
            but this.
    """
    worker = Worker.objects.filter(pk=models.OuterRef("worker_id"))
    rows = (
        Attempt.objects.using(using)
        .filter(job_id=job["id"])
        .order_by("-id")
        .annotate(
            shown_started_at=clamped("started_at"),
            shown_ended_at=clamped("ended_at"),
            shown_error=cut("error_message"),
            shown_traceback=cut("traceback"),
            worker=models.Subquery(worker.values("name")[:1]),
        )
        .values(
            *("attempt", "outcome", "worker_id", "worker", "error_class"),
            *("shown_started_at", "shown_ended_at", "shown_error", "shown_traceback"),
        )[:LATEST_TEXTS]
    )
    found = [_attempt(row) for row in reversed(rows)]
    if job["state"] in ("running", "completed") and job["shown_started_at"]:
        now = {**job, "outcome": job["state"], "error_class": None}
        now |= {"shown_ended_at": job["shown_finished_at"]}
        found.append(_attempt({**now, "shown_error": None, "shown_traceback": None}))
    return found


def _attempt(row: dict[str, Any]) -> AttemptDocument:
    started, ended = row["shown_started_at"], row["shown_ended_at"]
    has_both = started is not None and ended is not None
    return {
        "attempt": row["attempt"],
        "outcome": row["outcome"],
        "worker_id": text_id(row["worker_id"]),
        "worker": row["worker"],
        "started_at": instant(started),
        "ended_at": instant(ended),
        "duration": seconds(ended - started) if has_both else None,
        "error_class": row["error_class"],
        "error": shown_text(row["shown_error"]),
        "traceback": shown_text(row["shown_traceback"]),
    }


def logs_of(job_id: UUID, using: str, *, after: int = 0) -> list[LogDocument]:
    """Return the latest logs, the first attempt first.

    Args:
        after: those of later attempts only.
    """
    rows = (
        Output.objects.using(using)
        .filter(job_id=job_id, attempt__gt=after)
        .order_by("-attempt")
        .annotate(shown_at=clamped("at"))
        .values("attempt", "shown_at", "text")[:LATEST_TEXTS]
    )
    return [
        {
            "attempt": row["attempt"],
            "at": instant(row["shown_at"]),
            "text": row["text"],
        }
        for row in reversed(rows)
    ]


def steps_of(job_id: UUID, using: str, *, shown: bool) -> list[StepDocument]:
    """Return the latest steps, in the order in which they were done.

    Args:
        shown: whether their values may be seen.
    """
    rows = (
        Step.objects.using(using)
        .filter(job_id=job_id)
        .order_by("-id")
        .annotate(shown_done_at=clamped("done_at"), shown_value=texted("value"))
        .values("name", "attempt", "shown_done_at", "shown_value")[:LATEST]
    )
    return [
        {
            "name": row["name"],
            "attempt": row["attempt"],
            "done_at": instant(row["shown_done_at"]),
            "value": payload(row["shown_value"], shown=shown),
        }
        for row in reversed(rows)
    ]


# --- history -------------------------------------------------------------------------


def history_of(job: dict[str, Any], using: str) -> list[HistoryDocument]:
    """Return what happened, the first thing first.

    Rows tell of what is not ordinary; that a job was enqueued, started and ended is
    read off its own times and those of its attempts.
    """
    key = job["id"]
    events = list(_noted(key, using))
    tried = list(_tried(key, using))
    events += tried
    events += _ordinary(job, events)
    # By time; of the same instant what must have come first.
    events.sort(key=lambda event: (event[0], _rank(event[1]["event"])))
    return [document for _, document in events]


_Event = tuple[datetime, HistoryDocument]


def _rank(event: str) -> int:
    if event == "enqueued":
        return 0
    return 3 if event in _ENDINGS else 1 + (event != "started")


def _event(
    at: datetime,
    event: str,
    *,
    attempt: int | None = None,
    actor: str | None = None,
    worker_id: UUID | None = None,
    detail: Any = None,
) -> _Event:
    return at, {
        "at": instant(at),
        "event": event,
        "attempt": attempt,
        "actor": actor,
        "worker_id": text_id(worker_id),
        "detail": detail,
    }


def _noted(job_id: UUID, using: str) -> Iterator[_Event]:
    rows = (
        History.objects.using(using)
        .filter(job_id=job_id)
        .order_by("-id")
        .annotate(shown_at=clamped("at"), shown_detail=texted("detail"))
        .values("shown_at", "event", "attempt", "actor", "shown_detail")[:LATEST]
    )
    for row in reversed(rows):
        yield _event(
            row["shown_at"],
            row["event"],
            attempt=row["attempt"],
            actor=row["actor"],
            detail=payload(row["shown_detail"], shown=True),
        )


def _tried(job_id: UUID, using: str) -> Iterator[_Event]:
    """Give the starts of earlier attempts, and their ends that nothing else tells."""
    rows = (
        Attempt.objects.using(using)
        .filter(job_id=job_id)
        .order_by("-id")
        .annotate(
            shown_started_at=clamped("started_at"), shown_ended_at=clamped("ended_at")
        )
        .values(
            *("attempt", "outcome", "worker_id", "error_class"),
            *("shown_started_at", "shown_ended_at"),
        )[:LATEST]
    )
    for row in rows:
        at, attempt, worker = row["shown_started_at"], row["attempt"], row["worker_id"]
        if at is not None:
            yield _event(at, "started", attempt=attempt, worker_id=worker)
        if row["outcome"] == "fail":
            yield _event(
                row["shown_ended_at"],
                "failed",
                attempt=attempt,
                worker_id=worker,
                detail={"reason": row["error_class"]},
            )


def _ordinary(job: dict[str, Any], told: Iterable[_Event]) -> Iterator[_Event]:
    yield _event(job["shown_created_at"], "enqueued")
    known = {(event["event"], event["attempt"]) for _, event in told}
    attempt, state = job["attempt"], job["state"]
    started, finished = job["shown_started_at"], job["shown_finished_at"]
    if started is not None and ("started", attempt) not in known:
        yield _event(started, "started", attempt=attempt, worker_id=job["worker_id"])
    # A cancelled job has a row that says by whom.
    is_told = (state, attempt) in known or (
        state == "cancelled" and any(name == "cancel" for name, _ in known)
    )
    if finished is not None and state in _ENDINGS and not is_told:
        reason = {"reason": job["error_class"]} if state == "failed" else None
        yield _event(
            finished,
            state,
            attempt=attempt or None,
            worker_id=job["worker_id"],
            detail=reason,
        )
