"""One attempt, as a pipeline that ends in exactly one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from relay import context, logs, origin, traces
from relay.codec import clean_text
from relay.conf import get_settings
from relay.engine import rules
from relay.engine.claim import ClaimedJob
from relay.engine.expire import DEADLINE_EXCEEDED, NOT_STARTED_IN_TIME
from relay.engine.finish import Completed, Outcome, Settled
from relay.engine.report import Output
from relay.exceptions import Cancelled, UnknownTask
from relay.retry import Backoff
from relay.sensitive import (
    adecode_arguments,
    decode_arguments,
    encode_result,
    mask_text,
)
from relay.signals import job_started
from relay.tasks import Task, get_task
from relay.worker import announcing, middleware, transactional
from relay.worker.attempt_log import formatted, log_end, log_start, message_of
from relay.worker.interruption import Interruptible
from relay.worker.reports import Reports
from relay.worker.sessions import clean_connections
from relay.worker.traced import traced, traced_coroutine
from relay.worker.verdict import judge, timed_out
from relay.worker.watch import UNWATCHED, Watch

__all__ = ["Executor", "quietly"]

logger = logging.getLogger("relay.worker")

# A job that no process here can run, or whose database is away, comes back soon at
# first and rarely later. Source: docs/explanation/delivery.md, "Handed back".
_UNKNOWN_TASK: Final = Backoff(base=timedelta(seconds=5), cap=timedelta(minutes=5))
_OUTAGE: Final = Backoff(base=timedelta(seconds=2), cap=timedelta(minutes=1))

# Verbs of attempts whose log is kept where capture_logs is "failed".
_FAILED: Final = ("retry", "fail", "cancel")
_MESSAGE_LIMIT: Final = 2_000
_TRACEBACK_LIMIT: Final = 32_000


class Executor:
    """Runs one attempt at a time in the thread or coroutine that calls it.

    A handler sees a fresh context: nothing it activates (language, time zone, context
    variables) reaches the next job. Its database connections are cleaned before and
    after, as Django does around a request. No error leaves run() or run_async().

    Attributes:
        reports: what its handlers tell; to be written before their ends.
    """

    def __init__(
        self,
        worker_id: UUID,
        reports: Reports | None = None,
        *,
        watch: Watch = UNWATCHED,
    ) -> None:
        self._worker_id = worker_id
        self._watch = watch
        self.reports = reports or Reports()
        context.report_to(worker_id, self.reports)
        self._settings = get_settings()
        self._slow_job = self._settings.slow_job
        self._middleware = middleware.load()
        # Of completed jobs and of results, by task and queue.
        self._keeps: dict[tuple[str, str], tuple[float | None, float | None]] = {}

    def clean(self) -> None:
        """Clean this thread's connections; called around each plain handler."""
        clean_connections()

    def close(self) -> None:
        """End the watch; called once no handler runs any more."""
        self._watch.close()

    def close_thread(self) -> None:
        """Close this thread's connections; called where a slot's thread ends."""
        connections.close_all()

    def note_error(self, error: BaseException) -> None:
        """Take in what a handler raised, before it is judged; for those who watch."""

    def run_transactional(
        self,
        job: ClaimedJob,
        call: Callable[[], object],
        complete: Callable[[object], Completed],
    ) -> Outcome:
        """Call a handler and write its job's finish in one transaction."""
        return transactional.run(job, call, complete, worker_id=self._worker_id)

    def is_async(self, job: ClaimedJob) -> bool:
        """Tell whether the job's handler is a coroutine function."""
        task = _find(job)
        return task is not None and task.is_async

    def run(
        self, job: ClaimedJob, interruptible: Interruptible | None = None
    ) -> Outcome:
        """Run a handler in this thread.

        Args:
            interruptible: by which others stop it.
        """
        try:
            return copy_context().run(
                self._run, job, interruptible or Interruptible(job.id)
            )
        except BaseException as error:  # an edge: a slot must never be lost
            return self._broken(job, error)

    def _run(self, job: ClaimedJob, interruptible: Interruptible) -> Outcome:
        begun_at = time.monotonic()
        raised: BaseException | None = None
        task = _find(job)
        if task is None:
            outcome = self._unknown(job)
        elif job.start_by is not None and time.monotonic() >= job.start_by:
            outcome = self._too_late(job)
        else:
            capture = self._begin_capture(task)
            try:
                self._enter(job, interruptible)
                if job.timeout_ms is not None or task.has_limits:
                    self._watch.begin(interruptible, job, task)
                if job_started.receivers:
                    quietly(announcing.tell_started, job, task)
                self.clean()
                args, kwargs = decode_arguments(job.args, job.id)
                function = task.function
                if self._middleware is not None:
                    function = self._middleware.around(function)
                if (tracer := traces.tracer()) is not None:
                    function = traced(tracer, function, job, self._worker_id)
                if task.transactional:
                    outcome = self.run_transactional(
                        job,
                        partial(interruptible.call, function, args, kwargs),
                        partial(self._completed, job, task),
                    )
                else:
                    value = interruptible.call(function, args, kwargs)
            except BaseException as error:  # an edge: whatever a handler raises ends it
                outcome = self._failed(job, task, error, interruptible)
                raised = error
            else:
                if not task.transactional:
                    outcome = self._completed(job, task, value)
            finally:
                if interruptible.is_watched:
                    self._watch.end(interruptible)
                quietly(self.clean)
                if capture is not None:
                    quietly(logs.end, capture)
            if capture is not None:
                quietly(self._keep_log, job, task, capture, outcome)
        quietly(log_end, job, outcome, begun_at, raised, self._slow_job)
        del raised  # its traceback holds this frame
        return outcome

    async def run_async(
        self, job: ClaimedJob, interruptible: Interruptible | None = None
    ) -> Outcome:
        """Run a coroutine handler as part of this task, in the task's own context."""
        try:
            return await self._run_async(job, interruptible or Interruptible(job.id))
        except BaseException as error:  # an edge: a slot must never be lost
            return self._broken(job, error)

    async def _run_async(
        self, job: ClaimedJob, interruptible: Interruptible
    ) -> Outcome:
        begun_at = time.monotonic()
        raised: BaseException | None = None
        task = _find(job)
        if task is None:
            outcome = self._unknown(job)
        elif job.start_by is not None and time.monotonic() >= job.start_by:
            outcome = self._too_late(job)
        else:
            capture = self._begin_capture(task)
            try:
                self._enter(job, interruptible)
                wait: Callable[..., Awaitable[Any]] = interruptible.wait
                if job.timeout_ms is not None or task.has_limits:
                    loop = asyncio.get_running_loop()
                    self._watch.begin(interruptible, job, task, loop)
                    wait = interruptible.wait_warned
                value = await _in_own_thread(
                    wait(_await_handler, task, job, self._middleware, self._worker_id)
                )
            except BaseException as error:  # an edge: whatever a handler raises ends it
                outcome = self._failed(job, task, error, interruptible)
                raised = error
            else:
                outcome = self._completed(job, task, value)
            finally:
                if interruptible.is_watched:
                    self._watch.end(interruptible)
                if capture is not None:
                    quietly(logs.end, capture)
            if capture is not None:
                quietly(self._keep_log, job, task, capture, outcome)
        quietly(log_end, job, outcome, begun_at, raised, self._slow_job)
        del raised  # its traceback holds this frame
        return outcome

    def _enter(self, job: ClaimedJob, requests: context.Requests) -> None:
        """Make the job the current one, for its handler and for what is logged."""
        context.enter(
            (
                job.id,
                job.task,
                job.queue,
                job.attempt,
                job.failures,
                job.max_retries,
                self._worker_id,
                job.deadline_at,
                requests,
            )
        )
        if job.trace is not None:
            origin.take_over(job.trace)
        try:  # with suppress() takes longer than all of this
            if logger.isEnabledFor(logging.DEBUG):
                log_start(job)
        except Exception:  # an edge: a logging filter of the project's
            return

    def _capture_mode(self, task: Task[..., Any]) -> bool | Literal["failed"]:
        mode = task.capture_logs
        return self._settings.capture_logs if mode is None else mode

    def _begin_capture(self, task: Task[..., Any]) -> logs.Capture | None:
        if not self._capture_mode(task):
            return None
        capture = logs.Capture(
            limit_bytes=self._settings.max_log_bytes, with_stdout=task.capture_stdout
        )
        logs.begin(capture)
        return capture

    def _keep_log(
        self,
        job: ClaimedJob,
        task: Task[..., Any],
        capture: logs.Capture,
        outcome: Outcome,
    ) -> None:
        text = capture.text()
        has_failed = isinstance(outcome, Settled) and outcome.verb in _FAILED
        if text and (has_failed or self._capture_mode(task) is True):
            [masked] = mask_text(job.args, job.id, text)
            self.reports.output(Output(job.id, job.attempt, masked))

    def _completed(
        self, job: ClaimedJob, task: Task[..., Any], value: object
    ) -> Completed:
        result, note = encode_result(value, job.id, is_sensitive=task.sensitive is True)
        if note is not None:
            quietly(
                logger.warning,
                "result not stored as returned",
                extra={"job_id": str(job.id), "task": job.task, "reason": note},
            )
        keep = self._keeps.get((job.task, job.queue))
        if keep is None:
            said = rules.retention(task.retention, job.queue)
            keep = rules.seconds(said.completed), rules.seconds(said.result)
            self._keeps[job.task, job.queue] = keep
        return Completed(job.id, job.attempt, result, *keep)

    def _unknown(self, job: ClaimedJob) -> Outcome:
        return Settled(
            id=job.id,
            attempt=job.attempt,
            verb="hand_back",
            delay_seconds=_UNKNOWN_TASK.delay(job.attempt).total_seconds(),
            error_class=UnknownTask.__name__,
            error_message=f"no task named {job.task!r} is registered in this worker",
        )

    def _too_late(self, job: ClaimedJob) -> Outcome:
        return Settled(
            id=job.id,
            attempt=job.attempt,
            verb="fail",
            error_class=DEADLINE_EXCEEDED,
            error_message=NOT_STARTED_IN_TIME,
        )

    def _failed(
        self,
        job: ClaimedJob,
        task: Task[..., Any],
        error: BaseException,
        requests: context.Requests,
    ) -> Outcome:
        self.note_error(error)
        is_ended = requests.is_cancelled or requests.is_timed_out
        if requests.is_interrupted and not is_ended:
            return Settled(id=job.id, attempt=job.attempt, verb="release")
        error = _as_asked(error, requests)
        message, told = mask_text(job.args, job.id, message_of(error), formatted(error))
        verb, delay = judge(
            error,
            failures=job.failures,
            max_retries=job.max_retries,
            is_cancelled=requests.is_cancelled,
            rules=task.retries,
        )
        outcome = Settled(
            id=job.id,
            attempt=job.attempt,
            verb=verb,
            delay_seconds=delay.total_seconds(),
            error_class=clean_text(type(error).__name__, limit=200),
            error_message=clean_text(message, limit=_MESSAGE_LIMIT),
        )
        if verb == "hand_back":
            delay = _OUTAGE.delay(job.attempt)
            return replace(outcome, delay_seconds=delay.total_seconds())
        if verb == "snooze":
            return self._limited(outcome)
        return replace(
            outcome,
            is_charged=verb != "cancel",
            traceback=clean_text(told, limit=_TRACEBACK_LIMIT),
            until=task.retries.until if verb == "retry" else None,
        )

    def _limited(self, snooze: Settled) -> Settled:
        """Return the outcome with how many snoozes a job may have, and who says so."""
        most = self._settings.snooze_limit
        text = f"{snooze.error_message} (RELAY['SNOOZE_LIMIT'] is {most:,})"
        return replace(snooze, most=most, error_message=text)

    def _broken(self, job: ClaimedJob, error: BaseException) -> Outcome:
        """Return the outcome where not the handler but what surrounds it raised."""
        with contextlib.suppress(Exception):  # it may have been the log that raised
            logger.critical(
                "attempt ended by an error outside its handler",
                extra={"event": "job.broken", "job_id": str(job.id), "task": job.task},
                exc_info=error,
            )
        is_last = job.failures >= job.max_retries
        return Settled(
            id=job.id,
            attempt=job.attempt,
            verb="fail" if is_last else "retry",
            is_charged=True,
            delay_seconds=self._settings.backoff.delay(
                job.failures + 1
            ).total_seconds(),
            error_class=clean_text(type(error).__name__, limit=200),
            error_message="an error outside the handler: see the worker's log",
        )


def quietly(act: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
    """Do what surrounds a handler: whatever it raises, the handler's end stands."""
    try:
        act(*args, **kwargs)
    except BaseException:  # an edge: a logging filter of the project's, a lost session
        with contextlib.suppress(BaseException):
            connections.close_all()


def _as_asked(error: BaseException, requests: context.Requests) -> BaseException:
    """Return what an attempt ended by that may have been asked to stop."""
    if requests.is_cancelled:
        if isinstance(error, asyncio.CancelledError):
            return Cancelled().with_traceback(error.__traceback__)
        return error
    return timed_out(error) if requests.is_timed_out else error


def _find(job: ClaimedJob) -> Task[..., Any] | None:
    try:
        return get_task(job.task)
    except UnknownTask:
        return None


async def _await_handler(
    task: Task[..., Any],
    job: ClaimedJob,
    around: middleware.Middleware | None,
    worker_id: UUID,
) -> Any:
    if job_started.receivers:
        await announcing.atell_started(job, task)
    args, kwargs = await adecode_arguments(job.args, job.id)
    function = task.function
    if around is not None:
        function = around.around_coroutine(function)
    if (tracer := traces.tracer()) is not None:
        function = traced_coroutine(tracer, function, job, worker_id)
    return await function(*args, **kwargs)


async def _in_own_thread(handler: Awaitable[Any]) -> Any:
    """Await a handler; what it hands to sync_to_async gets a thread of its own.

    The thread ends with the handler, and its connections before it.
    """
    async with ThreadSensitiveContext() as thread:
        try:
            return await handler
        finally:
            if thread in SyncToAsync.context_to_thread_executor:
                await sync_to_async(connections.close_all)()
