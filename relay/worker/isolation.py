"""Tasks with isolation="process": their attempts run in processes apart.

To a child such a job is as any other: a thread of its slots waits for it. What runs it
can crash, be killed or be out of memory, and only its own attempt ends with it.
"""

from __future__ import annotations

import logging
import math
import os
import time
from typing import Any, Final
from uuid import UUID

from relay import traces
from relay.context import Requests
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome, Settled, Verb
from relay.engine.report import Output
from relay.exceptions import Cancelled, JobTimeout
from relay.tasks import Task, all_tasks
from relay.worker.apart import Apart, Gone, Nursery
from relay.worker.attempt_log import log_end
from relay.worker.executor import Executor, quietly
from relay.worker.fork import end_of
from relay.worker.frames import Answer, Attempt, pack_attempt, unpack
from relay.worker.interruption import Interruptible
from relay.worker.nursery import REQUEST_CANCEL, REQUEST_KILL, REQUEST_WITHDRAW
from relay.worker.reports import Reports
from relay.worker.stuck import NOT_STOPPED
from relay.worker.watch import Watch

__all__ = ["IsolatingExecutor"]

logger = logging.getLogger("relay.worker")

# Between two looks whether a running job is to stop.
LOOK_SECONDS: Final = 0.2
# What a handler may take to stop once it was interrupted; then its process is killed.
# With the keeper's poll and a look it stays within two seconds, and a timeout within
# one. Source: docs/explanation/isolation.md, "Constants".
GRACE_SECONDS: Final = 0.5
# A process that could not be started is asked for again after this.
NO_ROOM_SECONDS: Final = 5.0


class IsolatingExecutor(Executor):
    """Runs the attempts of isolated tasks in processes apart, the others here."""

    def __init__(
        self, worker_id: UUID, reports: Reports, nursery: Nursery, *, watch: Watch
    ) -> None:
        super().__init__(worker_id, reports, watch=watch)
        self._nursery = nursery

    def is_async(self, job: ClaimedJob) -> bool:
        """As the base: an isolated coroutine runs on the loop of its own process."""
        return super().is_async(job) and not self._nursery.takes(job)

    def run(
        self, job: ClaimedJob, interruptible: Interruptible | None = None
    ) -> Outcome:
        """Run a handler in this thread, or wait for it in this thread."""
        task = all_tasks().get(job.task)
        if task is None or task.isolation is None:
            return super().run(job, interruptible)
        try:
            return self._run_apart(job, task, interruptible or Interruptible(job.id))
        except BaseException as error:  # an edge: a slot must never be lost
            return self._broken(job, error)

    def _run_apart(
        self, job: ClaimedJob, task: Task[..., Any], interruptible: Interruptible
    ) -> Outcome:
        begun_at = time.monotonic()
        try:
            process = self._nursery.acquire(task)
        except Gone as gone:
            return self._put_off(job, gone)
        process.jobs += 1
        is_good = False
        try:
            frame = pack_attempt(
                Attempt(
                    job=job, worker_id=self._worker_id, memory_limit=task.memory_limit
                )
            )
            wait = _Wait(self._nursery, process, interruptible, job, self.reports)
            answer = wait.run(frame)
            is_good = not answer.is_worn and not _is_to_stop(interruptible)
        except Gone as gone:
            self._nursery.note_end(process, gone.code)
            outcome = self._ended(job, task, gone, interruptible)
            quietly(log_end, job, outcome, begun_at, slow=self._slow_job)
            return outcome
        finally:
            self._nursery.release(task, process, is_good=is_good)
        return answer.outcome

    def _put_off(self, job: ClaimedJob, gone: Gone) -> Outcome:
        """Return the outcome of an attempt that found no process."""
        if self._nursery.is_broken:
            return self._settled(job, "release")
        reason = "its nursery ended" if gone.code is None else os.strerror(-gone.code)
        quietly(
            logger.error,
            "no process could be started",
            extra={"event": "worker.start_failed", "error": reason},
        )
        return self._settled(
            job,
            "hand_back",
            delay_seconds=NO_ROOM_SECONDS,
            error_class="OSError",
            error_message=f"no process could be started for it: {reason}",
        )

    def _settled(self, job: ClaimedJob, verb: Verb, **values: Any) -> Settled:
        return Settled(id=job.id, attempt=job.attempt, verb=verb, **values)

    def _ended(
        self,
        job: ClaimedJob,
        task: Task[..., Any],
        gone: Gone,
        interruptible: Interruptible,
    ) -> Outcome:
        """Return the outcome of an attempt whose process has ended."""
        if interruptible.is_timed_out and not interruptible.is_cancelled:
            return self._failed(job, task, JobTimeout(NOT_STOPPED), interruptible)
        if _is_to_stop(interruptible):
            return self._failed(job, task, Cancelled(), interruptible)
        if gone.code is None:
            reason = "the isolated process ended with the one that watched over it"
        else:
            reason = end_of(gone.code, "the isolated process")
        return self._settled(
            job, "crash", error_class="WorkerDied", error_message=reason
        )


class _Wait:
    """One attempt in a process apart, from its start to its answer."""

    def __init__(
        self,
        nursery: Nursery,
        process: Apart,
        interruptible: Interruptible,
        job: ClaimedJob,
        reports: Reports,
    ) -> None:
        self._job = job
        self._reports = reports
        self._nursery = nursery
        self._process = process
        self._interruptible = interruptible
        self._kill_at: float | None = None
        # Its own process interrupts it before that.
        self._times_out_at = (
            math.inf
            if job.timeout_ms is None
            else time.monotonic() + job.timeout_ms / 1_000 + GRACE_SECONDS
        )

    def run(self, frame: bytes) -> Answer:
        """Send the attempt and wait.

        Raises:
            Gone: the process has ended without an answer.
        """
        while True:
            if frame:
                frame = self._process.send(frame, LOOK_SECONDS)
            elif (received := self._process.receive(LOOK_SECONDS)) is not None:
                answer = unpack(received)
                if isinstance(answer, Answer):
                    self._report(answer)
                    return answer
                self._reports.progress(self._job.id, self._job.attempt, answer)
            self._look()

    def _report(self, answer: Answer) -> None:
        if answer.log is not None:
            self._reports.output(Output(self._job.id, self._job.attempt, answer.log))
        if answer.span is not None and (tracer := traces.tracer()) is not None:
            tracer.note_ran(self._job.id, self._job.attempt, answer.span)

    def _look(self) -> None:
        """Interrupt the handler if the job is to stop, and kill what does not."""
        now = time.monotonic()
        if now >= self._times_out_at:
            self._interruptible.is_timed_out = True
            self._nursery.request(REQUEST_KILL, self._process)
        elif self._kill_at is not None:
            if now >= self._kill_at:
                self._nursery.request(REQUEST_KILL, self._process)
        elif _is_to_stop(self._interruptible):
            self._kill_at = now + GRACE_SECONDS
            is_cancelled = self._interruptible.is_cancelled
            self._nursery.request(
                REQUEST_CANCEL if is_cancelled else REQUEST_WITHDRAW, self._process
            )


def _is_to_stop(requests: Requests) -> bool:
    is_ended = requests.is_cancelled or requests.is_timed_out
    return is_ended or requests.is_interrupted
