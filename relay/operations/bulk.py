"""Acts over all jobs that match a filter: asked for, counted, run, cancelled."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, ParamSpec, cast
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from django.utils.dateparse import parse_datetime

from relay.conf import OWN_QUEUE, check_queue_name, get_settings
from relay.engine.acts import ActReport
from relay.exceptions import ArgumentError, Conflict, DecodeError, MissingKey, NotFound
from relay.failure import Failure
from relay.models import LIVE_STATES, BulkOperation, BulkState, Job
from relay.operations import bulk_jobs
from relay.operations.actor import Actor, why_of
from relay.operations.bulk_jobs import ACTIONS, Place
from relay.operations.filters import parse
from relay.operations.job_filter import JobFilter, Term
from relay.operations.jobs import VERBS
from relay.operations.registry import Act, operation
from relay.operations.rights import Rights, parted
from relay.tasks import Task, register

__all__ = [
    "Matched",
    "cancel_bulk",
    "count_bulk",
    "count_purge",
    "purge_queue",
    "start_bulk",
]

logger = logging.getLogger("relay.operations")

P = ParamSpec("P")

# Jobs changed by one transaction, and found by one statement: whatever was changed is
# passed over by each search again. Source: docs/howto/many-jobs.md.
CHUNK: Final = 1_000
PAGE: Final = 20_000
# Counted no further.
COUNT_LIMIT: Final = 100_000
# As large as its column.
MOST_EXPECTED: Final = 2_147_483_647
_WAITING: Final = ("scheduled", "retrying", "queued")
# Between two records of how far an operation is.
PROGRESS_SECONDS: Final = 5.0
# By how much more than was expected an operation may come to.
GROWTH: Final = 1.1

# What a run writes of an operation; the rest is the asker's.
_WRITTEN: Final = (
    "state",
    "matched",
    "done",
    "asked",
    "skipped",
    "failed",
    "position",
    "error",
)
_ENDED: Final = (BulkState.COMPLETED, BulkState.CANCELLED, BulkState.FAILED)


@dataclass(frozen=True, slots=True)
class Matched:
    """How many jobs a bulk operation would be about.

    Attributes:
        count: how many, up to 100,000.
        is_capped: whether there are more.
    """

    count: int
    is_capped: bool


def count_bulk(actor: Actor, action: str, filter: str | JobFilter) -> Matched:
    """Count the jobs that start_bulk would be about, and change nothing.

    Raises:
        NotAllowed, ArgumentError: as start_bulk; also where it takes too long.
    """
    wanted = _checked(actor, action, filter, "count_bulk")
    actor.require("bulk_job", "count_bulk")
    return _count(action, wanted, get_settings().database)


def count_purge(actor: Actor, queue: str) -> Matched:
    """Count the jobs that purge_queue would delete, and change nothing.

    Raises:
        NotAllowed, ArgumentError: as purge_queue; also where it takes too long.
    """
    actor.require("manage_queue", "count_purge")
    return _count("delete", _waiting(queue), get_settings().database)


@operation("bulk_job", subject="bulk")
def start_bulk(
    act: Act, action: str, filter: str | JobFilter, *, expected: int | None = None
) -> BulkOperation:
    """Do something to all jobs that match a filter, in the background.

    A job of relay's own changes 1,000 of them at a time, each chunk in one transaction.
    Broken off it goes on where it was. Any worker runs it, whatever queues it serves
    and whichever are paused. Of a replay, jobs of tasks and queues that ask for what
    the actor lacks now are skipped.

    Args:
        action: cancel, retry, replay, run_now or delete.
        filter: in the filter language; not empty. Without a state it means those
            in which the action is usual.
        expected: how many the asker was told of. With more than a tenth above it the
            operation is refused, or ends as it finds them. Without, it is about jobs
            that were enqueued before it was asked for, and no later ones.

    Raises:
        NotAllowed: the actor lacks bulk_job or the permission of the action.
        ArgumentError: the action or the filter cannot be used.
        Conflict: more match than expected.
    """
    wanted = _checked(act.actor, action, filter, act.operation)
    return _start(act, action, wanted, expected)


@operation("manage_queue", subject="queue")
def purge_queue(act: Act, queue: str, *, expected: int | None = None) -> BulkOperation:
    """Delete all jobs of a queue that wait, in the background, as start_bulk does.

    Raises:
        NotAllowed: the actor lacks manage_queue.
        ArgumentError: the name can be no queue's.
        Conflict: more wait than expected.
    """
    return _start(act, "delete", _waiting(queue), expected)


def _waiting(queue: str) -> JobFilter:
    try:
        name = check_queue_name(queue)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    return JobFilter((Term("queue", (name,)), Term("state", _WAITING)))


@operation("bulk_job", subject="bulk")
def cancel_bulk(act: Act, bulk_id: UUID) -> None:
    """Let a bulk operation go no further than the chunk it is at.

    One that no job goes on with, be it deleted or cancelled itself, ends at once.

    Raises:
        NotAllowed: the actor lacks bulk_job.
        NotFound: there is none.
        Conflict: it has ended.
    """
    rows = BulkOperation.objects.using(act.using).filter(pk=bulk_id)
    bulk = rows.select_for_update().first()
    if bulk is None:
        raise NotFound(f"bulk operation {bulk_id} does not exist")
    if bulk.state in _ENDED:
        raise Conflict(f"cannot cancel bulk operation {bulk_id}: it is {bulk.state}")
    rows.update(cancel_requested_at=Now())
    if bulk.state == BulkState.QUEUED or not _has_job(bulk, act.using):
        bulk.state = BulkState.CANCELLED
        rows.update(state=bulk.state, finished_at=Now())
        act.log("bulk.finished", "bulk operation finished", **_fields(bulk))
    act.note(bulk_id)


def _has_job(bulk: BulkOperation, using: str) -> bool:
    """Tell whether a job goes on with an operation, or will."""
    jobs = Job.objects.using(using).filter(state__in=LIVE_STATES)
    return bulk.job_id is not None and jobs.filter(pk=bulk.job_id).exists()


def _checked(
    actor: Actor, action: str, filter: str | JobFilter, operation: str
) -> JobFilter:
    wanted = parse(str(filter))  # as the run reads it
    bulk_jobs.states_of(action, wanted)
    for permission in (ACTIONS[action].permission, *wanted.permissions):
        actor.require(permission, operation)
    return wanted


def _count(action: str, wanted: JobFilter, using: str) -> Matched:
    states = bulk_jobs.states_of(action, wanted)
    return Matched(*bulk_jobs.count(wanted, states, limit=COUNT_LIMIT, using=using))


def _start(
    act: Act, action: str, wanted: JobFilter, expected: int | None
) -> BulkOperation:
    if expected is not None:
        _check_expected(expected)
        found = _count(action, wanted, act.using)
        if found.count > expected * GROWTH:
            raise Conflict(_too_many(found.count, expected))
    bulk = BulkOperation(
        action=action,
        filter=str(wanted),
        expected=expected,
        position={"states": bulk_jobs.states_of(action, wanted)},
        actor=act.actor.name,
        source=act.actor.source,
        reason=act.actor.reason,
        request_id=act.actor.request_id,
    )
    if action == "replay" and (limits := act.actor.limits) is not None:
        bulk.rights = limits.document()
    bulk.job_id = run_bulk.enqueue(str(bulk.pk)).id
    bulk.save(using=act.using, force_insert=True)
    bulk.refresh_from_db(using=act.using)
    target = bulk.pk if act.subject == "bulk" else wanted.terms[0].values[0]
    act.note(target, bulk=str(bulk.pk), action=action, filter=wanted.told())
    act.log("bulk.started", "bulk operation started", bulk=str(bulk.pk), action=action)
    return bulk


def _check_expected(expected: object) -> None:
    is_whole = isinstance(expected, int) and not isinstance(expected, bool)
    if not is_whole or not 0 <= cast("int", expected) <= MOST_EXPECTED:
        raise ArgumentError(
            f"expected={str(expected)[:20]}: give a whole number up to "
            f"{MOST_EXPECTED:,}, or None"
        )


def _too_many(found: int, expected: int) -> str:
    return (
        f"{found:,} jobs match and {expected:,} were expected: look again, and give "
        "what you find"
    )


# --- the run, in a worker ------------------------------------------------------------


def _note_failed(failure: Failure) -> None:
    """Say of a bulk operation that nobody goes on with it."""
    rows = BulkOperation.objects.using(get_settings().database).filter(
        job_id=failure.job_id, state__in=(BulkState.QUEUED, BulkState.RUNNING)
    )
    bulk = rows.first()
    error = f"{failure.error_class}: {failure.error_message}"
    if bulk is not None and rows.update(
        state=BulkState.FAILED, finished_at=Now(), error=error
    ):
        bulk.state, bulk.error = BulkState.FAILED, error
        _tell(bulk)


def _run_bulk(bulk_id: str) -> None:
    """Go through a bulk operation, from where it is to its end."""
    run = _Run(UUID(bulk_id), get_settings().database)
    while run.step():
        pass


def _own(made: Task[P, None]) -> Task[P, None]:
    """Put a task's jobs where every worker finds them, whatever is paused."""
    made.queue = OWN_QUEUE
    register(made)
    return made


note_failed: Final = _own(Task(_note_failed, name="relay.bulk.failed"))
run_bulk: Final = _own(Task(_run_bulk, name="relay.bulk", on_failure=note_failed))


class _Run:
    """One run through a bulk operation; others may have begun it, or be at it too."""

    def __init__(self, bulk_id: UUID, using: str) -> None:
        self._id = bulk_id
        self._using = using
        # Found and not gone through yet, of one state; and whether there may be more.
        self._page: list[Place] = []
        self._state: str | None = None
        self._has_more = False
        self._is_changed = True
        self._tell_at = time.monotonic() + PROGRESS_SECONDS

    def step(self) -> bool:
        """Do one chunk, in one transaction with what is noted of it; False at the end.

        Whoever else is at the same operation waits here, and then goes on behind it.
        """
        with transaction.atomic(using=self._using):
            rows = BulkOperation.objects.using(self._using).filter(pk=self._id)
            bulk = rows.select_for_update().first()
            if bulk is None or bulk.state in _ENDED:
                return False
            if bulk.state == BulkState.QUEUED:
                bulk.state = BulkState.RUNNING
                rows.update(started_at=Now())
            self._go_on(bulk)
            if bulk.state in _ENDED:
                rows.update(finished_at=Now())
            bulk.save(
                using=self._using,
                update_fields=_WRITTEN,
            )
        has_ended = bulk.state in _ENDED
        if has_ended or time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + PROGRESS_SECONDS
            _tell(bulk)
        return not has_ended

    def _go_on(self, bulk: BulkOperation) -> None:
        if bulk.cancel_requested_at is not None:
            bulk.state = BulkState.CANCELLED
            return
        states = bulk.position["states"]
        if not states:
            bulk.state = BulkState.COMPLETED
            return
        chunk = self._next_chunk(bulk, states[0])
        if not chunk:
            bulk.position = {"states": states[1:]}
            self._state = None
            return
        bulk.matched += len(chunk)
        if bulk.expected is not None and bulk.matched > bulk.expected * GROWTH:
            bulk.matched -= len(chunk)
            bulk.state = BulkState.FAILED
            bulk.error = _too_many(bulk.matched + len(chunk), bulk.expected)
            return
        self._change(bulk, [place.id for place in chunk])
        if bulk_jobs.has_places(bulk.action, states[0]):
            bulk.position = {"states": states, **_written(chunk[-1])}

    def _next_chunk(self, bulk: BulkOperation, state: str) -> Sequence[Place]:
        if self._state != state or (not self._page and self._has_more):
            # Nothing of a whole page was to be changed: the same would be found again.
            if self._state == state and not self._is_changed:
                return ()
            after = _place(bulk.position)
            self._page = bulk_jobs.find(
                parse(bulk.filter),
                state,
                after=after,
                before=bulk.created_at if bulk.expected is None else None,
                limit=PAGE,
                using=self._using,
            )
            self._has_more = len(self._page) == PAGE
            self._is_changed = bulk_jobs.has_places(bulk.action, state)
            self._state = state
        chunk, self._page = self._page[:CHUNK], self._page[CHUNK:]
        return chunk

    def _change(self, bulk: BulkOperation, ids: Sequence[UUID]) -> None:
        for report, failed in self._reports(bulk, ids):
            bulk.done += len(report.done)
            bulk.asked += len(report.asked)
            bulk.failed += failed
            reasons = Counter(bulk.skipped)
            reasons.update(skip.reason for skip in report.skipped)
            bulk.skipped = dict(reasons)
            self._is_changed |= bool(report.done or report.asked)

    def _reports(
        self, bulk: BulkOperation, ids: Sequence[UUID]
    ) -> list[tuple[ActReport, int]]:
        """Act on all at once, or one by one where one of them cannot be read."""
        act, refused = VERBS[bulk.action], ActReport((), ())
        if bulk.rights is not None:
            rights = Rights.of_document(bulk.rights)
            ids, skipped = parted(rights, ids, using=self._using)
            refused = ActReport((), skipped)
        why = why_of(bulk.source, bulk.reason, bulk.request_id)
        try:
            with transaction.atomic(using=self._using):
                return [(act(ids, bulk.actor, why, self._using), 0), (refused, 0)]
        except (DecodeError, MissingKey):
            if len(ids) == 1:
                return [(ActReport((), ()), 1), (refused, 0)]
        # In the order of ids, in which everybody locks.
        apart = [each for one in sorted(ids) for each in self._reports(bulk, [one])]
        return [*apart, (refused, 0)]


def _tell(bulk: BulkOperation) -> None:
    """Log how far an operation is, or how it has ended."""
    names = ("actor", "source", "reason", "request_id")
    who = {name: getattr(bulk, name) for name in names}
    if bulk.state == BulkState.RUNNING:
        event, message, level = "bulk.progress", "bulk operation goes on", logging.INFO
    else:
        event, message = "bulk.finished", "bulk operation finished"
        is_failed = bulk.state == BulkState.FAILED
        level = logging.WARNING if is_failed else logging.INFO
    logger.log(level, message, extra={"event": event, **_fields(bulk), **who})


def _fields(bulk: BulkOperation) -> dict[str, Any]:
    return {
        "bulk": str(bulk.pk),
        "action": bulk.action,
        "state": str(bulk.state),
        "matched": bulk.matched,
        "done": bulk.done,
        "asked": bulk.asked,
        "skipped": bulk.skipped,
        "failed": bulk.failed,
        "error": bulk.error,
    }


def _written(place: Place) -> dict[str, Any]:
    at = place.finished_at
    return {"id": str(place.id), "at": None if at is None else at.isoformat()}


def _place(position: dict[str, Any]) -> Place | None:
    if "id" not in position:
        return None
    at: datetime | None = None
    if position["at"] is not None:
        at = parse_datetime(position["at"])
    return Place(UUID(position["id"]), at)
