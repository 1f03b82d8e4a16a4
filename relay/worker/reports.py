"""What handlers tell while they run, kept for the loop, which writes it in batches.

A handler's own connection is not asked: it may be in a transaction, where nobody would
see the news before its end, and a rollback would take it back.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import psycopg

from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection
from relay.engine.finish import is_bad_row
from relay.engine.report import Output, write_outputs, write_progress
from relay.progress import Progress
from relay.sensitive import mask_text

__all__ = ["Reports"]

logger = logging.getLogger("relay.worker")

# Between two writes of one child's progress, of all its jobs together.
WRITE_SECONDS: Final = 0.5


class Reports:
    """The news of one child's handlers.

    Args:
        on_news: called, from any thread, when there is something to write.
        has_row: whether the jobs have rows, as all do but for a test's.
    """

    def __init__(
        self, on_news: Callable[[], None] = lambda: None, *, has_row: bool = True
    ) -> None:
        self.has_row = has_row
        self._on_news = on_news
        # The last one of each job, with its attempt. Each act on it is atomic.
        self._progress: dict[UUID, tuple[int, Progress]] = {}
        self._outputs: deque[Output] = deque()
        self._write_at = 0.0

    # --- from handlers ---------------------------------------------------------------

    def progress(self, job_id: UUID, attempt: int, progress: Progress) -> None:
        """Take in how far a job is; what it told before and was not written is gone."""
        is_first = not self._progress
        self._progress[job_id] = attempt, progress
        if is_first:
            self._on_news()

    def output(self, output: Output) -> None:
        """Take in what an attempt has logged, before its end is known to the loop."""
        self._outputs.append(output)

    # --- from the loop ---------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to write, now or soon."""
        return bool(self._progress or self._outputs)

    def seconds_left(self) -> float:
        """Return how long progress may wait; infinite if there is none.

        What attempts have logged is written as they end.
        """
        if not self._progress:
            return math.inf
        return max(0.0, self._write_at - time.monotonic())

    def write(
        self,
        connection: EngineConnection,
        worker_id: UUID,
        jobs: Mapping[UUID, ClaimedJob],
        *,
        ended: Collection[UUID],
    ) -> None:
        """Write what is due: of jobs that have ended all, of the others now and then.

        Must come before the ends themselves, which close the rows.

        Args:
            jobs: those that this child holds.

        Raises:
            psycopg.Error: the database is in trouble; it is kept for the next time.
        """
        self._write_outputs(connection, worker_id)
        now = time.monotonic()
        is_due = now >= self._write_at
        names = list(self._progress) if is_due else self._progress.keys() & set(ended)
        taken = {
            job_id: news
            for job_id in names
            if (news := self._progress.pop(job_id, None)) is not None
        }
        if not taken:
            return
        if is_due:
            self._write_at = now + WRITE_SECONDS
        documents = [
            (job_id, attempt, _document(progress, jobs[job_id]))
            for job_id, (attempt, progress) in taken.items()
            if job_id in jobs
        ]
        try:
            write_progress(connection, worker_id, documents)
        except psycopg.Error as error:
            if is_bad_row(error):
                logger.warning(
                    "PostgreSQL refused the progress of jobs",
                    extra={"event": "job.progress_refused", "error": str(error)},
                )
                return
            for job_id, news in taken.items():
                self._progress.setdefault(job_id, news)
            raise

    def _write_outputs(self, connection: EngineConnection, worker_id: UUID) -> None:
        outputs: list[Output] = []
        while self._outputs:
            outputs.append(self._outputs.popleft())
        if not outputs:
            return
        try:
            write_outputs(connection, worker_id, outputs)
        except psycopg.Error as error:
            if not is_bad_row(error):
                self._outputs.extendleft(reversed(outputs))
                raise
            logger.warning(
                "PostgreSQL refused the logs of jobs",
                extra={"event": "job.log_refused", "error": str(error)},
            )


def _document(progress: Progress, job: ClaimedJob) -> dict[str, Any]:
    """Return what is stored; a message may quote what the job was given."""
    if progress.message:
        [message] = mask_text(job.args, job.id, progress.message)
        progress = replace(progress, message=message)
    return progress.document()
