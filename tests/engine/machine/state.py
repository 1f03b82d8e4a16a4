"""One run of the state machine: two sessions, the model, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

import psycopg
from hypothesis.stateful import RuleBasedStateMachine, invariant

from relay.engine.claim import Marks
from tests.engine import rows
from tests.engine.machine import records as m
from tests.engine.machine import sessions
from tests.engine.machine.model import Model
from tests.engine.machine.records import Change, Token
from tests.engine.machine.sessions import Blocked, Open, Seen, Side

__all__ = ["WORKERS", "State"]

# Few, so that a job comes back to the worker it was taken from.
WORKERS = 2

_ids = count(1)


def next_id() -> UUID:
    """Return ids that are the same, in the same order, whenever a run is repeated."""
    return UUID(int=next(_ids))


class State(RuleBasedStateMachine):
    """What the rules act on; connections outlive the single run."""

    pair: ClassVar[list[Side]] = []
    observer: ClassVar[psycopg.Connection[Any]]

    def __init__(self) -> None:
        super().__init__()
        global _ids
        _ids = count(1)
        sessions.empty(self.observer)
        self.model = Model()
        self.marks: dict[UUID, Marks] = {}
        self.workers = [self._add_worker() for _ in range(WORKERS)]
        self.tokens: list[Token] = []
        self.open: Open | None = None
        self.blocked: Blocked | None = None
        self.seen: dict[UUID, Seen] = {}

    def teardown(self) -> None:
        if self.open is not None:
            self.open.side.end(self.open.role, commits=False)
        if self.blocked is not None:
            self.blocked.answer.result(timeout=60)

    # --- the frame -------------------------------------------------------------------

    def _act(
        self,
        side: int,
        role: str,
        act: Callable[..., Any],
        judge: Callable[[Any], Change],
        *,
        leave_open: bool | None = None,
    ) -> None:
        """Run a call in a session and judge its answer, now or once it has one."""
        if self.open is not None and not self.open.acts_left:
            self._end_open(self.open.commits)
            self.the_tables_are_what_the_model_says()
        if self.open is not None:
            self.open.acts_left -= 1
            chosen = next(own for own in self.pair if own is not self.open.side)
            answer = chosen.run(role, act)
            if self._waits(chosen.pid(role), answer):
                self.blocked = Blocked(answer, judge)
            else:
                self.model.apply(judge(answer.result()))
            return
        chosen = self.pair[side]
        if leave_open is not None:
            chosen.begin(role)
            self.open = Open(chosen, role, leave_open, Change())
            change = judge(chosen.run(role, act).result(timeout=60))
            self.open.change = change
            self.model.lock(change)
        else:
            self.model.apply(judge(chosen.run(role, act).result(timeout=60)))

    def _waits(self, own: int, answer: Future[Any]) -> bool:
        """Tell whether a call waits for the open transaction; it has ended if not."""
        assert self.open is not None
        holder = self.open.side.pid(self.open.role)
        while True:
            try:
                answer.exception(timeout=0.003)
                return False
            except TimeoutError:
                waiting = self.observer.execute(
                    "SELECT %s = ANY(pg_blocking_pids(%s))", (holder, own)
                ).fetchone()
                if waiting == (True,):
                    return True

    def _worker(self, number: int) -> UUID:
        """Return a worker; mostly one that is alive, made anew where there is none."""
        place = number % WORKERS
        worker = self.workers[place]
        if self.open is None and number % 4 and not self.model.workers[worker].is_live:
            worker = self.workers[place] = self._add_worker()
        return worker

    def _is_due(self, worker: UUID) -> bool:
        row = self.model.workers[worker]
        return row.is_live and row.until <= self.model.clock

    def _is_any(self, states: Sequence[str]) -> bool:
        jobs = self.model.jobs.values()
        return self.blocked is None and any(job.state in states for job in jobs)

    def _holder(self, number: int) -> UUID:
        """Return who holds a running job, if anybody, and best one that is dead."""
        running = [job for job in self.model.jobs.values() if job.state == "running"]
        holders = sorted({job.worker for job in running if job.worker})
        dead = [one for one in holders if not self.model.workers[one].is_live]
        chosen = dead or holders or self.workers
        return chosen[number % len(chosen)]

    def _add_worker(self) -> UUID:
        lease_for = timedelta(minutes=m.LEASE)
        worker = rows.add_worker(
            self.pair[0].duty, lease_for=lease_for, worker_id=next_id()
        )
        self.model.workers[worker] = m.Lease("running", self.model.clock + m.LEASE)
        self.marks[worker] = Marks()
        return worker

    def _job(self, number: int) -> UUID:
        ids = list(self.model.jobs)
        return ids[-1 - number % len(ids)]

    def _job_for(self, verb: str, number: int) -> UUID:
        """Return a job in a state for the act, mostly."""
        states = {
            "cancel": (*m.WAITING, "running"),
            "retry": ("failed", "cancelled"),
            "run_now": ("scheduled", "retrying"),
            "replay": m.FINAL,
        }[verb]
        fit = [one for one, job in self.model.jobs.items() if job.state in states]
        return fit[number % len(fit)] if fit and number % 4 else self._job(number)

    # --- what must hold --------------------------------------------------------------

    @invariant()
    def the_tables_are_what_the_model_says(self) -> None:
        before, self.seen = self.seen, sessions.look(self.observer)
        self._check_changes(before)
        expected = {job_id: self._expected(job_id) for job_id in self.model.jobs}
        assert self.seen == expected
        # In the order of ready_seq, so the places have to rise.
        places = [self.model.jobs[job_id].place for job_id in self.seen]
        assert places == sorted(places)
        for place in {place for place in places if places.count(place) > 1}:
            together = [one for one in self.seen if self.model.jobs[one].place == place]
            if together != sorted(together):
                sessions.put_in_order(self.observer, sorted(together))

    def _expected(self, job_id: UUID) -> Seen:
        job, clock = self.model.jobs[job_id], self.model.clock
        return Seen(
            job.state,
            job.queue,
            job.priority,
            job.attempt,
            job.failures,
            job.crashes,
            job.losses,
            job.worker,
            job.key,
            job.due[0] - clock if job.state in ("scheduled", "retrying") else None,
            job.expires if job.expires in (None, m.FOREVER) else job.expires - clock,
            tuple((event.name, event.attempt) for event in job.history),
            job.attempts,
        )

    def _check_changes(self, before: dict[UUID, Seen]) -> None:
        """Check what no statement may ever do, without asking the model."""
        given = {(token.id, token.worker, token.attempt) for token in self.tokens}
        live_keys = [
            row.key
            for row in self.seen.values()
            if row.key and row.state not in m.FINAL
        ]
        assert len(live_keys) == len(set(live_keys))
        for job_id, row in self.seen.items():
            assert row.failures <= 26
            assert row.crashes <= m.CRASH_LIMIT
            if row.state == "running":
                assert (job_id, row.worker, row.attempt) in given
            old = before.get(job_id)
            if old is None or old == row:
                continue
            assert row.attempt - old.attempt in (0, 1)
            assert row.attempt == old.attempt or row.state == "running"
            assert row.history[: len(old.history)] == old.history
            if old.state in m.FINAL and row.state != old.state:
                assert row.history[-1][0] == "manual"
                assert (row.failures, row.crashes, row.losses) == (0, 0, 0)
