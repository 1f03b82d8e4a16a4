"""In each child: claim → hand out → wait; and the drain."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import psycopg

from relay.conf import OWN_QUEUE, Settings, get_settings
from relay.engine import holdings
from relay.engine.claim import ClaimedJob, read_claimed, send_claim
from relay.engine.connection import EngineConnection
from relay.engine.finish import (
    Settled,
    Verb,
    is_bad_row,
    read_states,
)
from relay.worker.alone import ALONE_SECONDS, Alone, put_off_seconds
from relay.worker.apart import Nursery
from relay.worker.bell import Bell
from relay.worker.cancels import read_cancels
from relay.worker.claims import Claims
from relay.worker.executor import Executor
from relay.worker.hands import Hands
from relay.worker.hearing import Hearing
from relay.worker.isolation import IsolatingExecutor
from relay.worker.link import Link
from relay.worker.memory import resident_bytes
from relay.worker.options import LoopOptions
from relay.worker.pace import UNKNOWN_SECONDS, Pace
from relay.worker.pool import Ended, Pool
from relay.worker.reports import Reports
from relay.worker.shared import SlotTable
from relay.worker.watch import Watch

__all__ = ["CAPACITY", "Loop"]

logger = logging.getLogger("relay.worker")

# Attempts that may be in a child's hands at once; sizes its slot table.
CAPACITY: Final = 4_096
# Outcomes per statement: 100 and 1,000 take the same time for each.
FLUSH_LIMIT: Final = 1_000
# Between two looks whether the keeper has registered this child.
REGISTERED_POLL_SECONDS: Final = 0.25
# Between two looks at threads that hold up what is behind them.
POKE_SECONDS: Final = 0.005


class Loop:
    """One thread: everything but user code happens here, in turn.

    Args:
        worker_id: this child's id, fresh at each start.
        table: its slot table; it claims only once the keeper has registered it.
        control: datagrams from the keeper.
        parent: a pipe that ends when the parent dies; None where no parent can.
        nursery: runs the isolated tasks, if there are any.
    """

    def __init__(
        self,
        worker_id: UUID,
        options: LoopOptions,
        table: SlotTable,
        control: socket.socket,
        parent: int | None,
        nursery: Nursery | None = None,
    ) -> None:
        self._worker_id = worker_id
        self._options = options
        self._settings: Settings = get_settings()
        self._table = table
        self._control = control
        self._parent = parent
        self._readers = [control] if parent is None else [control, parent]
        self._bell = Bell()
        self._is_draining = False
        self._link = _link(worker_id)
        self._reports = Reports(self._bell.ring)
        self._nursery = nursery
        self._pool = Pool(
            options.concurrency,
            _executor(worker_id, self._reports, nursery),
            table,
            on_end=self._bell.ring,
            nursery=nursery,
        )
        self._hands = Hands(worker_id, table, on_told=self._bell.ring)
        self._hearing = Hearing(options.queues)
        self._alone = Alone()
        self._pace = Pace()
        self._claims = Claims(options, self._settings.poll_interval)
        self._must_compare = False
        self._compare_at = 0.0
        self._poke_at = 0.0

    # --- waiting ----------------------------------------------------------------------

    def drain(self, *_: object) -> None:
        """Stop claiming, hand back what has not started, end when the rest is done."""
        self._is_draining = True

    def _wait(self, seconds: float) -> None:
        self._bell.expect()
        if self._pool.has_ended or self._hearing.has_news:
            seconds = 0
        seconds = min(seconds, self._reports.seconds_left())
        ready = self._bell.wait([*self._readers, *self._hearing.readers], seconds)
        if self._parent in ready:
            self._end_orphaned()
        if self._control in ready:
            self._read_control()
        if self._link.connection in ready:
            try:
                self._hearing.read()
            except psycopg.Error as error:
                self._lose(error)

    def _end_orphaned(self) -> None:
        """The parent is gone: nobody would reap, restart or settle."""
        self.drain()

    def _read_control(self) -> None:
        try:
            while True:
                text = self._control.recv(65536)
                if self._hands.waiters.read(text):
                    continue
                cancelled = read_cancels(text)
                for job_id, attempt in cancelled:
                    self._cancel(job_id, attempt)
                self._claims.is_hinted |= not cancelled
        except BlockingIOError:
            return

    def _cancel(self, job_id: UUID, attempt: int) -> None:
        """Stop a job that this child holds: before it starts, or in its handler.

        One that has ended meanwhile is left: its end is about to be written.
        """
        job = self._hands.held.get(job_id)
        if job is None or job.attempt != attempt:
            return
        if job in self._alone:
            self._alone.remove(job)
        elif not self._pool.drop(job):
            self._pool.cancel(job_id)
            return
        self._end_unstarted(job, "cancel")

    # --- the loop --------------------------------------------------------------------

    def run(self) -> None:
        """Run until drained; max_jobs and max_memory_bytes drain too."""
        self._control.setblocking(False)
        while not self._is_done():
            self._step()
        self._tell()
        self._hands.announcer.close()
        if self._nursery is not None:
            self._nursery.close()

    def _is_done(self) -> bool:
        return self._is_draining and self._hands.are_empty()

    def _step(self) -> None:
        now = time.monotonic()
        self._table.tick(now)
        self._collect()
        if self._is_draining:
            self._hand_back()
        elif self._is_worn():
            self.drain()
            return
        elif self._table.is_quiet:
            self._hand_back()
        if not self._table.is_registered:
            self._wait(REGISTERED_POLL_SECONDS)  # the keeper wakes it earlier
            return
        if now < self._link.retry_at:
            seconds = self._link.retry_at - now
            self._wait(min(seconds, POKE_SECONDS) if self._pool.is_waiting else seconds)
        else:
            try:
                if not self._exchange(now):
                    self._wait(self._idle_seconds(now))
            except psycopg.Error as error:
                self._lose(error)
        if now >= self._hands.tally.due_at:
            self._tell()
        self._run_alone(now)
        self._poke(now)

    def _tell(self) -> None:
        self._hands.tally.tell(self._control, self._hands.held.values())
        self._hands.announcer.see_to_thread()

    def _poke(self, now: float) -> None:
        """See to it that long jobs do not hold up what was claimed beyond the slots."""
        if now < self._poke_at:
            return
        self._poke_at = now + POKE_SECONDS
        is_held_up = self._pool.poke()
        is_held_up |= self._pool.is_waiting and self._pace.is_slow
        if self._pace.is_stuck(now, is_held_up=is_held_up):
            self._hand_back()

    def _collect(self) -> None:
        for end in self._pool.take():
            self._pace.measure(end)
            self._hands.unflushed.append(end)

    def _exchange(self, now: float) -> bool:
        """Flush what has ended and claim what there is room for, in one round trip.

        Tell whether there was anything to do.
        """
        room = self._room()
        self._claims.hear(self._hearing)
        is_due = room > 0 and self._claims.are_due(now)
        is_compare_due = self._must_compare or now >= self._compare_at
        is_told = self._reports.seconds_left() == 0
        if not (self._hands.unflushed or is_due or is_compare_due or is_told):
            return False
        connection = self._connected()
        if self._reports.has_news:
            ended = {end.job.id for end in self._hands.unflushed}
            self._reports.write(
                connection, self._worker_id, self._hands.held, ended=ended
            )
        if is_compare_due:
            self._compare(connection)
            room = self._room()
        batch = self._hands.take_batch(FLUSH_LIMIT)
        try:
            claimed = self._flush_and_claim(connection, batch, room, now)
        except psycopg.Error:
            self._hands.put_back(batch)
            raise
        self._link.is_sound()
        self._hand_out(claimed)
        if self._hands.waiters.is_awaited:
            self._hands.waiters.tell(connection)
        return True

    def _flush_and_claim(
        self,
        connection: EngineConnection,
        batch: list[Ended],
        room: int,
        now: float,
    ) -> list[ClaimedJob]:
        if room:
            queues, spans = self._claims.spans(now, self._hands)
            sent_at = time.monotonic()
        try:
            # An idle worker's claim stands alone, which is a tenth of a ms sooner.
            with connection.block() if batch else connection.single():
                finishing = self._hands.send(connection, batch)
                claiming = (
                    send_claim(connection, spans, limit=room, worker_id=self._worker_id)
                    if room
                    else None
                )
            finished = read_states(finishing)
            claimed = read_claimed(claiming, queues, sent_at=sent_at) if room else []
        except psycopg.Error as error:
            if not batch or connection.closed:
                raise
            # The claim must not take the finish with it, nor one row the others.
            if room and not is_bad_row(error):
                self._claims.put_off(now)
                self._link.report("claim failed", error)
            self._hands.write(connection, batch)
            return []
        self._hands.settle(batch, finished)
        if room:
            self._hands.note_claim(queues, claimed, time.monotonic() - sent_at)
            self._claims.note(claimed, room, now)
        return claimed

    # --- handing out -----------------------------------------------------------------

    def _room(self) -> int:
        """Return how many jobs to ask for: the free slots and a small buffer."""
        if self._is_draining or self._table.is_quiet:
            return 0
        if self._alone.is_exclusive or self._hands.is_behind:
            return 0
        slots = self._options.concurrency
        room = slots + self._pace.buffer(slots) - self._hands.going_on
        return max(0, min(room, CAPACITY - len(self._hands.held)))

    def _hand_out(self, claimed: Sequence[ClaimedJob]) -> None:
        together: list[ClaimedJob] = []
        held = self._hands.held
        for job in claimed:
            if held.setdefault(job.id, job) is not job:
                held[job.id] = job
                continue  # handed out again after the database went back: it runs on
            if job.queue == OWN_QUEUE and self._hands.own_jobs > 1:
                self._end_unstarted(job, "release")  # they are long: one at a time
            elif not job.crashes or self._runs_apart(job):
                together.append(job)
            elif self._pool.oldest_seconds() > ALONE_SECONDS:
                self._put_off(job)  # it would only wait, and the others with it
            else:
                self._alone.add(job)
        if together:
            self._pool.submit(together, seconds_each=self._pace.expected_seconds)

    def _runs_apart(self, job: ClaimedJob) -> bool:
        """Tell whether the job is alone in its process anyway."""
        return self._nursery is not None and self._nursery.takes(job)

    def _run_alone(self, now: float) -> None:
        """Run jobs with a crash on record while this child runs nothing else."""
        if self._hands.going_on > len(self._alone):
            if self._alone and now > self._alone.put_off_at:
                # The others here take too long.
                for job in self._alone.take_all():
                    self._put_off(job)
            elif self._alone:
                self._release(self._pool.withdraw())  # nothing else starts meanwhile
        elif (next_job := self._alone.next(now)) is not None:
            self._pool.submit([next_job], seconds_each=UNKNOWN_SECONDS)

    def _put_off(self, job: ClaimedJob) -> None:
        self._end_unstarted(job, "snooze", delay_seconds=put_off_seconds())

    # --- the drain -------------------------------------------------------------------

    def _hand_back(self) -> None:
        """Release what has not started: ready at once, uncharged."""
        self._release([*self._pool.withdraw(), *self._alone.take_all()])

    def _release(self, jobs: Iterable[ClaimedJob]) -> None:
        for job in jobs:
            self._end_unstarted(job, "release")

    def _end_unstarted(
        self, job: ClaimedJob, verb: Verb, *, delay_seconds: float = 0.0
    ) -> None:
        outcome = Settled(
            id=job.id,
            attempt=job.attempt,
            verb=verb,
            delay_seconds=delay_seconds,
        )
        self._hands.end_unstarted(outcome, job)

    def _is_worn(self) -> bool:
        options = self._options
        if options.max_jobs is not None and self._hands.settled >= options.max_jobs:
            return True
        if self._nursery is not None and self._nursery.is_broken:
            return True
        # Before its first job it cannot have grown: the next one would be as large.
        return (
            options.max_memory_bytes is not None
            and (self._hands.settled > 0 or len(self._hands.unflushed) > 0)
            and resident_bytes() > options.max_memory_bytes
        )

    # --- the connection --------------------------------------------------------------

    def _connected(self) -> EngineConnection:
        if self._link.connection is None:
            self._hearing.listen(self._link.connected())
            self._must_compare = True
        return self._link.connected()

    def _lose(self, error: psycopg.Error) -> None:
        self._hearing.lose()
        self._link.lose(error)

    def _compare(self, connection: EngineConnection) -> None:
        """Compare the rows this worker owns with the jobs it holds.

        A row it does not know, as after a claim whose answer was lost, goes back
        uncharged. A job whose row is gone does not start any more.
        """
        queues = (OWN_QUEUE, *self._claims.order.names)
        rows = holdings.held(connection, self._worker_id, queues)
        try:
            self._hands.release_unknown(connection, rows)
        except psycopg.Error as error:
            if not is_bad_row(error):
                raise
            self._link.report("rows that PostgreSQL refuses to release", error)
        for job in [job for job in self._hands.held.values() if job.id not in rows]:
            if self._pool.drop(job) or job in self._alone:
                self._hands.held.pop(job.id)
        self._alone.keep_only(self._hands.held)
        self._must_compare = False
        self._compare_at = time.monotonic() + (self._settings.lease / 3).total_seconds()
        self._claims.is_hinted = True

    def _idle_seconds(self, now: float) -> float:
        """Return how long to wait when there is nothing to flush or claim."""
        if self._pool.is_waiting:
            return POKE_SECONDS
        until = [self._compare_at]
        if self._room() > 0:
            until.append(self._claims.poll_at)
        if self._alone:
            until.append(self._alone.put_off_at)
        longest = self._settings.poll_interval.total_seconds()
        return min(longest, max(0.0, min(until) - now))


def _link(worker_id: UUID) -> Link:
    return Link(
        role="hot",
        name="worker",
        trouble="database trouble: reconnecting",
        event="worker.db_reconnect",
        fields={"worker_id": str(worker_id)},
    )


def _executor(worker_id: UUID, reports: Reports, nursery: Nursery | None) -> Executor:
    """Return what runs attempts; its watch starts with the first limited one."""
    if nursery is None:
        return Executor(worker_id, reports, watch=Watch())
    return IsolatingExecutor(worker_id, reports, nursery, watch=Watch())
