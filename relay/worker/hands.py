"""What is in a child's hands: each job from its claim to the answer to its finish."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg

from relay import traces
from relay.conf import OWN_QUEUE, get_settings
from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection
from relay.engine.crash import send_crashed
from relay.engine.finish import (
    Completed,
    Outcome,
    Settled,
    Written,
    completions,
    is_bad_row,
    read_states,
    send_settled,
)
from relay.engine.holdings import release_held
from relay.engine.order import send_locks
from relay.engine.trace import send_spans
from relay.worker import announcing
from relay.worker.pool import NOT_STARTED, Ended
from relay.worker.shared import SlotTable
from relay.worker.tally import Tally
from relay.worker.waiters import Waiters

__all__ = ["Hands"]

logger = logging.getLogger("relay.worker")


class Hands:
    """The jobs a child holds, and those among them whose end is to be written.

    Attributes:
        held: every job, by id.
        unflushed: the attempts that have ended, in the order of their ends.
        settled: how many jobs have been let go of.
        waiters: who is to be told of which end.
        announcer: tells the project's receivers.
        tally: counts the ends.
    """

    def __init__(
        self,
        worker_id: UUID,
        table: SlotTable,
        on_told: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker_id = worker_id
        self._table = table
        self._settings = get_settings()
        self.held: dict[UUID, ClaimedJob] = {}
        self.unflushed: deque[Ended] = deque()
        self.settled = 0
        self.waiters = Waiters()
        self.announcer = announcing.Announcer(on_told)
        self.tally = Tally()
        self._sent_at = 0.0
        # Those whose finish was sent and its answer lost.
        self._doubtful: set[UUID] = set()

    def are_empty(self) -> bool:
        """Tell whether nothing is held, and every receiver has heard of what was.

        They have RELAY["GRACE"] for it, from the first time this is asked with nothing
        held: one that never returns must not keep its child.
        """
        return not self.held and self.announcer.is_over(self._settings.grace)

    @property
    def own_jobs(self) -> int:
        """How many of relay's own jobs are held."""
        return sum(job.queue == OWN_QUEUE for job in self.held.values())

    @property
    def is_behind(self) -> bool:
        """Whether receivers have so much to hear of that nothing more is claimed."""
        return self.announcer.is_behind

    @property
    def going_on(self) -> int:
        """How many jobs have not ended yet."""
        return len(self.held) - len(self.unflushed)

    def end_unstarted(self, outcome: Settled, job: ClaimedJob) -> None:
        """Let a job go that was claimed and did not start."""
        self.unflushed.append(Ended(job, outcome, NOT_STARTED, 0.0))

    def release_unknown(
        self, connection: EngineConnection, rows: Mapping[UUID, int]
    ) -> None:
        """Release rows of this worker, with their attempts, that it does not hold."""
        unknown = [
            (job_id, attempt)
            for job_id, attempt in rows.items()
            if job_id not in self.held
        ]
        if unknown:
            release_held(
                connection, self._worker_id, unknown, reason="claimed, answer lost"
            )

    def take_batch(self, limit: int) -> list[Ended]:
        """Take what is to be written next; settle() or put_back() must follow."""
        count = min(len(self.unflushed), limit)
        return [self.unflushed.popleft() for _ in range(count)]

    def put_back(self, batch: list[Ended]) -> None:
        """Keep for the next flush what was not settled; its answer was lost."""
        # A part of it may be written and let go of by now.
        left = [end for end in batch if end.job.id in self.held]
        self._doubtful.update(end.job.id for end in left)
        self.unflushed.extendleft(reversed(left))

    def send(self, connection: EngineConnection, batch: list[Ended]) -> list[Any]:
        """Send the ends of a batch; finish.read_states() takes the answers.

        Their rows are locked first where several statements are going to lock them.
        """
        completed: list[Completed] = []
        settled: list[Settled] = []
        crashed: list[Settled] = []
        for end in batch:
            outcome = self._current(end)
            if isinstance(outcome, Completed):
                completed.append(outcome)
            elif isinstance(outcome, Settled):
                (crashed if outcome.verb == "crash" else settled).append(outcome)
        self._sent_at = time.monotonic()
        completing = completions(completed, worker_id=self._worker_id)
        spans = self._spans(settled)
        count = len(completing) + bool(crashed) + bool(spans) + bool(settled)
        if count > 1 and len(batch) > 1:
            mixed = [one.id for one in completed]
            mixed += [one.id for one in (*crashed, *settled)]
            send_locks(connection, mixed, worker_id=self._worker_id)
        sent = [
            connection.execute(statement, values, prepare=connection.prepares)
            for statement, values in completing
        ]
        sent += send_crashed(
            connection,
            crashed,
            worker_id=self._worker_id,
            crash_limit=self._settings.crash_limit,
            backoff=self._settings.backoff,
        )
        send_spans(connection, spans, worker_id=self._worker_id)
        return sent + send_settled(
            connection,
            settled,
            worker_id=self._worker_id,
            hand_back_limit=self._settings.unknown_task_limit,
        )

    def _spans(self, settled: Sequence[Settled]) -> list[tuple[UUID, int, str]]:
        """Return the spans of attempts that another may follow, for that to link to."""
        if not settled or (tracer := traces.tracer()) is None:
            return []
        return [
            (each.id, each.attempt, span)
            for each in settled
            if (span := tracer.ran(each.id, each.attempt)) is not None
        ]

    def note_claim(
        self, queues: Sequence[str], claimed: Sequence[ClaimedJob], seconds: float
    ) -> None:
        """Take in a claim over these queues, which took so long."""
        self.tally.note_claim(queues, claimed, seconds)
        if claimed and (tracer := traces.tracer()) is not None:
            tracer.receive(claimed, self._worker_id, seconds)

    def _current(self, end: Ended) -> Outcome:
        """Return the outcome under the attempt that this child holds now.

        A database that went back in time may have given the same job out again; the
        run that was going on is then the one that counts.
        """
        held = self.held.get(end.job.id, end.job)
        if held.attempt == end.outcome.attempt:
            return end.outcome
        return replace(end.outcome, attempt=held.attempt)

    def write(self, connection: EngineConnection, batch: list[Ended]) -> None:
        """Write what has ended; a row that PostgreSQL refuses stands alone and fails.

        Raises:
            psycopg.Error: the database is in trouble; what was not written is not
                settled.
        """
        try:
            with connection.block():
                finishing = self.send(connection, batch)
            finished = read_states(finishing)
        except psycopg.Error as error:
            if not is_bad_row(error):
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                self.write(connection, batch[:middle])
                self.write(connection, batch[middle:])
                return
            self._fail_refused(connection, batch[0], error)
            return
        self.settle(batch, finished)

    def _fail_refused(
        self, connection: EngineConnection, end: Ended, error: psycopg.Error
    ) -> None:
        for is_charged in (True, False):
            refused = Settled(
                id=end.job.id,
                attempt=end.outcome.attempt,
                verb="fail",
                is_charged=is_charged,
                error_class=type(error).__name__,
                error_message="PostgreSQL refused what the job returned or raised: "
                f"{error.diag.message_primary}",
            )
            try:
                with connection.block():
                    finishing = self.send(connection, [end._replace(outcome=refused)])
                finished = read_states(finishing)
            except psycopg.Error as again:
                if not is_bad_row(again):
                    raise
            else:
                self.settle([end], finished)
                return
        # The row itself is refused, as by a trigger or a column at its end: the others
        # must not wait for it.
        logger.critical(
            "PostgreSQL refuses every end of a job: it is let go of",
            extra={
                "event": "job.refused",
                "job_id": str(end.job.id),
                "task": end.job.task,
                "error": str(error),
            },
        )
        self.settle([end], {end.job.id: "running"})

    def settle(self, batch: list[Ended], finished: Mapping[UUID, str]) -> None:
        """Let go of what is written, and of what another worker has by now.

        Args:
            finished: the jobs that were written, with their states.
        """
        if announcing.is_heard():
            ends = ((end.job, end.outcome, end.seconds) for end in batch)
            self.announcer.put(announcing.news_of(ends, finished))
        self.tally.note_ends(batch, finished)
        if (tracer := traces.tracer()) is not None:
            self._trace(batch, finished, tracer)
        for end in batch:
            if end.entry != NOT_STARTED:
                self._table.end(end.entry)
            job_id = end.job.id
            self.held.pop(job_id, None)
            state = finished.get(job_id)
            if state is None:
                self._note_unwritten(end)
            elif state == "failed":
                announcing.log_if_unforeseen(end.job, end.outcome)
        if self._doubtful:
            self._doubtful.difference_update(end.job.id for end in batch)
        self.settled += len(batch)
        if self.waiters.is_awaited:
            self.waiters.note(end.job.id for end in batch)

    def _trace(
        self,
        batch: Sequence[Ended],
        finished: Mapping[UUID, str],
        tracer: traces.Tracer,
    ) -> None:
        ends = [
            (
                end.job,
                None
                if isinstance(end.outcome, Written)
                else finished.get(end.job.id, "lost"),
            )
            for end in batch
            if end.entry != NOT_STARTED
        ]
        tracer.settle(ends, self._worker_id, time.monotonic() - self._sent_at)

    def _note_unwritten(self, end: Ended) -> None:
        if end.job.id in self._doubtful or isinstance(end.outcome, Written):
            return  # written by the statement whose answer was lost, or by the handler
        self.tally.note_lost()
        logger.warning(
            "lease lost: the result was dropped",
            extra={
                "event": "job.lease_lost",
                "job_id": str(end.job.id),
                "task": end.job.task,
                "attempt": end.outcome.attempt,
            },
        )
