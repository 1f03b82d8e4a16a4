"""Random acts in two interleaved sessions against the model in tests/engine/model.py.

Every rule runs the engine's own statements. One transaction may be left open while the
other session acts: what that has to wait for counts as done after it, what skips its
rows as done before. After every rule the tables must be what the model says, and no row
may have changed in a way that is never allowed, whatever the model says. What that
proves, and which mutants it has caught: docs/reliability.md, "The state machine".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from django.db import connection as django_connection
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from relay.engine import control, enqueue, finish, lease, promote, prune
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection, connect
from relay.engine.enqueue import NewJob
from relay.exceptions import DuplicateJob, StateConflict
from relay.ids import uuid7
from relay.unique import Unique, UniqueKey
from tests.engine import model as m
from tests.engine import rows
from tests.engine.model import Asked, Change, Model, Token
from tests.scale import scaled

QUEUES = ("default", "other")
# Few, so that a job comes back to the worker it was taken from.
WORKERS = 2
KEYS = ("00" * 16, "11" * 16)

pick = st.integers(0, 1_000)
minutes = st.sampled_from([10, 20, 30])
keeps = st.sampled_from([None, 0, 10, 30])
sides = st.sampled_from([0, 1])
kinds = st.sampled_from(["held", "held", "stale", "any"])
# None ends the transaction at once; else it is left open, and this says how it ends.
left_open = st.sampled_from([None, None, None, True, False])
# Acts of the other session before that.
ACTS_BESIDE = 3


class Side:
    """One session: the connections of a worker, of a duty and of a caller."""

    def __init__(self) -> None:
        self.hot = connect("default", role="hot", name="tests")
        self.duty = connect("default", role="duty", name="tests")
        self.thread = ThreadPoolExecutor(1)  # Django's connections belong to threads

    def close(self) -> None:
        self.hot.close()
        self.duty.close()
        self.thread.submit(self._close_django).result()
        self.thread.shutdown()

    def begin(self, role: str) -> None:
        if role == "django":
            self.thread.submit(self._begin_django).result()
        else:
            self._engine(role).execute("BEGIN")

    def end(self, role: str, *, commits: bool) -> None:
        if role == "django":
            self.thread.submit(self._end_django, commits).result()
        else:
            self._engine(role).execute("COMMIT" if commits else "ROLLBACK")

    def run(self, role: str, act: Callable[..., Any]) -> Future[Any]:
        if role == "django":
            return self.thread.submit(_caught, act)
        return self.thread.submit(act, self._engine(role))

    def _engine(self, role: str) -> EngineConnection:
        return self.hot if role == "hot" else self.duty

    # The proxy finds the connection of the thread that asks it: ask in there.
    @staticmethod
    def _close_django() -> None:
        django_connection.close()

    @staticmethod
    def _begin_django() -> None:
        django_connection.set_autocommit(False)

    @staticmethod
    def _end_django(commits: bool) -> None:
        (django_connection.commit if commits else django_connection.rollback)()
        django_connection.set_autocommit(True)


def _caught(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except (DuplicateJob, StateConflict) as error:
        return error


@dataclass(slots=True)
class Open:
    """A transaction that was left open, and what it has done."""

    side: Side
    role: str
    commits: bool
    change: Change
    acts_left: int = ACTS_BESIDE


@dataclass(slots=True)
class Blocked:
    """A call that waits for the open transaction."""

    answer: Future[Any]
    judge: Callable[[Any], Change]


@dataclass(frozen=True, slots=True)
class Seen:
    """One row as it was committed; times in minutes from now."""

    state: str
    queue: str
    priority: int
    attempt: int
    failures: int
    crashes: int
    losses: int
    worker: UUID | None
    key: str | None
    due: int | None
    expires: int | None
    history: tuple[tuple[str, int], ...]
    attempts: tuple[tuple[int, str], ...]


LOOK = """
SELECT job.id, state, queue, priority, attempt, failures, crashes, losses, worker_id,
       encode(unique_key, 'hex'),
       CASE WHEN state IN ('scheduled', 'retrying')
       THEN round(extract(epoch FROM run_at - now()) / 60)::int END,
       CASE WHEN expires_at < '9000-01-01'
       THEN round(extract(epoch FROM expires_at - now()) / 60)::int
       WHEN expires_at IS NOT NULL THEN 1000000000 END,
       ARRAY(SELECT event || ' ' || attempt FROM relay_history
             WHERE job_id = job.id ORDER BY id),
       ARRAY(SELECT outcome || ' ' || attempt FROM relay_attempt
             WHERE job_id = job.id ORDER BY id)
FROM relay_job AS job ORDER BY ready_seq, id
"""
PASSES = """
UPDATE relay_job SET run_at = run_at - %(by)s::interval,
    expires_at = expires_at - %(by)s::interval,
    unique_until = CASE WHEN unique_until < '9000-01-01'
                   THEN unique_until - %(by)s::interval ELSE unique_until END;
UPDATE relay_worker SET lease_expires_at = lease_expires_at - %(by)s::interval;
UPDATE relay_queue SET paused_until = paused_until - %(by)s::interval;
UPDATE relay_history SET at = at - %(by)s::interval;
"""
TABLES = ("job", "attempt", "history", "worker", "queue")


class Engine(RuleBasedStateMachine):
    """The rules; connections outlive the single run."""

    pair: ClassVar[list[Side]] = []
    observer: ClassVar[psycopg.Connection[Any]]

    def __init__(self) -> None:
        super().__init__()
        for table in TABLES:
            self.observer.execute(f"DELETE FROM relay_{table}")
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
            self.blocked.answer.result(timeout=10)

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
            if self._waits(answer):
                self.blocked = Blocked(answer, judge)
            else:
                self.model.apply(judge(answer.result()))
            return
        chosen = self.pair[side]
        if leave_open is not None:
            chosen.begin(role)
            self.open = Open(chosen, role, leave_open, Change())
            change = judge(chosen.run(role, act).result(timeout=10))
            self.open.change = change
            self.model.lock(change)
        else:
            self.model.apply(judge(chosen.run(role, act).result(timeout=10)))

    def _waits(self, answer: Future[Any]) -> bool:
        while True:
            try:
                answer.exception(timeout=0.003)
                return False
            except TimeoutError:
                waiting = self.observer.execute(
                    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND datname = current_database()"
                ).fetchone()
                if waiting is not None:
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
        worker = rows.add_worker(self.pair[0].duty, lease_for=lease_for)
        self.model.workers[worker] = m.Lease("running", self.model.clock + m.LEASE)
        self.marks[worker] = Marks()
        return worker

    def _job(self, number: int) -> UUID:
        ids = list(self.model.jobs)
        return ids[-1 - number % len(ids)]

    def _job_for(self, verb: str, number: int) -> UUID:
        """Return a job in a state for the act, mostly."""
        states = {
            "cancel": m.WAITING,
            "retry": ("failed", "cancelled"),
            "run_now": ("scheduled", "retrying"),
            "replay": m.FINAL,
        }[verb]
        fit = [one for one, job in self.model.jobs.items() if job.state in states]
        return fit[number % len(fit)] if fit and number % 4 else self._job(number)

    def _held_tokens(self) -> list[Token]:
        return [token for token in self.tokens if self.model.holds(token)]

    def _tokens(self, number: int, kind: str, count: int = 1) -> list[Token]:
        """Return count tokens that are held, or no more held though their jobs run."""
        if kind == "held" and self.open is None and not self._held_tokens():
            self._claim(self._worker(number), 2, QUEUES, "start", 0, None)
            self.the_tables_are_what_the_model_says()
        held = self._held_tokens()
        running = {token.id for token in held}
        stale = [
            token for token in self.tokens if token.id in running and token not in held
        ]
        chosen = {"held": held, "stale": stale}.get(kind) or self.tokens
        start = number % len(chosen)
        return (chosen[start:] + chosen[:start])[:count]

    @initialize(priorities=st.lists(st.sampled_from([0, 7]), max_size=4))
    def jobs_are_there(self, priorities: list[int]) -> None:
        for priority in priorities:
            asked = Asked(id=uuid7(), queue="default", priority=priority, max_retries=1)
            self._enqueue(asked, 0, None)

    # --- rules -----------------------------------------------------------------------

    acts = precondition(lambda self: self.blocked is None)
    on_jobs = precondition(lambda self: self.blocked is None and self.model.jobs)
    on_tokens = precondition(lambda self: self.blocked is None and self.tokens)

    @precondition(lambda self: self.open is not None)
    @rule(commits=st.booleans())
    def end_the_open_transaction(self, commits: bool) -> None:
        self._end_open(commits)

    def _end_open(self, commits: bool) -> None:
        assert self.open is not None
        self.open.side.end(self.open.role, commits=commits)
        self.model.unlock()
        if commits:
            self.model.apply(self.open.change)
        self.open = None
        if self.blocked is not None:
            blocked, self.blocked = self.blocked, None
            self.model.apply(blocked.judge(blocked.answer.result(timeout=10)))

    @precondition(lambda self: self.open is None)
    @rule(
        by=minutes,
        then=st.sampled_from(["nothing", "promote", "take", "prune"]),
        side=sides,
        leave_open=left_open,
    )
    def time_passes(
        self, by: int, then: str, side: int, leave_open: bool | None
    ) -> None:
        """Let time pass, and perhaps have the duty done for which it has come."""
        self._pass(by)
        if then == "promote":
            self.promote(limit=3, side=side, leave_open=leave_open)
        elif then == "prune":
            self.prune(side=side, leave_open=leave_open)
        elif then == "take":
            self.give_up(side=side, leave_open=None)
            self.take(number=by, keep=by, side=side, leave_open=leave_open)

    def _pass(self, by: int) -> None:
        passed = f"{by} minutes"
        with self.observer.transaction():
            for statement in PASSES.split(";")[:-1]:
                self.observer.execute(statement.encode(), {"by": passed})
        self.model.passes(by)

    @precondition(lambda self: self.blocked is None and len(self.model.jobs) < 10)
    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from([-3, 0, 0, 7]),
        max_retries=st.sampled_from([0, 1, 25]),
        run_in=st.sampled_from([0, 0, 10, 20]),
        side=sides,
        leave_open=left_open,
    )
    def enqueue(self, side: int, leave_open: bool | None, **options: Any) -> None:
        self._enqueue(Asked(id=uuid7(), **options), side, leave_open)

    @acts
    @rule(
        key=st.sampled_from(KEYS),
        mode=st.sampled_from(["started", "finished", "window", "forever"]),
        conflict=st.sampled_from(["return", "raise", "replace", "push", "both"]),
        run_in=st.sampled_from([0, 0, 10]),
        window=minutes,
        side=sides,
        leave_open=left_open,
    )
    def enqueue_unique(
        self, conflict: str, side: int, leave_open: bool | None, **options: Any
    ) -> None:
        asked = Asked(
            id=uuid7(),
            queue="default",
            priority=0,
            max_retries=1,
            raises=conflict == "raise",
            replaces=conflict in ("replace", "both"),
            pushes=conflict in ("push", "both"),
            **options,
        )
        self._enqueue(asked, side, leave_open)

    @on_jobs
    @rule(number=pick, side=sides)
    def enqueue_again_after_an_unknown_commit(self, number: int, side: int) -> None:
        job_id = self._job(number)
        if self.model.jobs[job_id].scope_key is None:
            asked = Asked(id=job_id, queue="default", priority=0, max_retries=0)
            self._enqueue(asked, side, None)

    def _enqueue(self, asked: Asked, side: int, leave_open: bool | None) -> None:
        self._act(
            side,
            "django",
            partial(enqueue.insert, _new_job(asked), using="default"),
            partial(self.model.enqueue, asked),
            leave_open=leave_open,
        )

    @precondition(lambda self: self.blocked is None and len(self.model.jobs) < 10)
    @rule(count=st.integers(1, 3), priority=st.sampled_from([0, 7]), side=sides)
    def enqueue_many(self, count: int, priority: int, side: int) -> None:
        asked = [
            Asked(id=uuid7(), queue="default", priority=priority, max_retries=1)
            for _ in range(count)
        ]
        jobs = [_new_job(one) for one in asked]
        self._act(
            side,
            "django",
            partial(enqueue.insert_many, jobs, using="default"),
            partial(self.model.enqueue_many, asked),
        )

    @acts
    @rule(
        number=pick,
        limit=st.integers(1, 4),
        queues=st.sampled_from([QUEUES, QUEUES[::-1], QUEUES[:1]]),
        looks_from=st.sampled_from(["start", "mark", "sweep"]),
        side=sides,
        leave_open=left_open,
    )
    def claim(
        self,
        number: int,
        limit: int,
        queues: tuple[str, ...],
        looks_from: str,
        side: int,
        leave_open: bool | None,
    ) -> None:
        worker = self._worker(number)
        self._claim(worker, limit, queues, looks_from, side, leave_open)

    @precondition(lambda self: self.open is None and self.model.ready(QUEUES))
    @rule(number=pick, side=sides)
    def jobs_go_round(self, number: int, side: int) -> None:
        """Claim, hand back and claim again, so that old tokens are about."""
        worker = self._worker(number)
        self._claim(worker, 2, QUEUES, "start", side, None)
        self.the_tables_are_what_the_model_says()
        for token in self._held_tokens():
            if token.worker == worker:
                self._release(token, side, None)
                self.the_tables_are_what_the_model_says()
        self._claim(worker, 10, QUEUES, "start", side, None)

    def _claim(
        self,
        worker: UUID,
        limit: int,
        queues: tuple[str, ...],
        looks_from: str,
        side: int,
        leave_open: bool | None,
    ) -> None:
        marks = Marks() if looks_from == "start" else self.marks[worker]
        if looks_from == "sweep":
            marks.sweep()

        def act(connection: EngineConnection) -> list[tuple[UUID, int]]:
            spans = marks.spans(queues)
            cursor = send_claim(connection, spans, limit=limit, worker_id=worker)
            jobs = read_claimed(cursor, queues)
            marks.note(jobs, limit=limit)
            return [(job.id, job.attempt) for job in jobs]

        def judge(answer: list[tuple[UUID, int]]) -> Change:
            self.tokens += [
                Token(id=job_id, worker=worker, attempt=attempt)
                for job_id, attempt in answer
            ]
            is_exact = looks_from != "mark"
            return self.model.claim(worker, queues, limit, is_exact, answer)

        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(
        number=pick,
        kind=kinds,
        count=st.integers(1, 3),
        keep=keeps,
        side=sides,
        leave_open=left_open,
    )
    def complete(
        self,
        number: int,
        kind: str,
        count: int,
        keep: int | None,
        side: int,
        leave_open: bool | None,
    ) -> None:
        tokens = self._tokens(number, kind, count)
        worker = tokens[0].worker
        tokens = [token for token in tokens if token.worker == worker]
        # One result for each job, as in a worker: the newest it holds.
        tokens = list({token.id: token for token in tokens}.values())
        done = [
            finish.Completed(token.id, token.attempt, "null", _seconds(keep))
            for token in tokens
        ]

        def act(connection: EngineConnection) -> set[UUID]:
            return finish.read_finished(
                finish.send_completed(connection, done, worker_id=worker)
            )

        judge = partial(self.model.complete, tokens, keep)
        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(
        number=pick,
        kind=kinds,
        verb=st.sampled_from(["retry", "fail", "hand_back", "snooze", "release"]),
        delay=st.sampled_from([0, 10, 20]),
        keep=keeps,
        side=sides,
        leave_open=left_open,
    )
    def settle(
        self,
        number: int,
        kind: str,
        verb: Any,
        delay: int,
        keep: int | None,
        side: int,
        leave_open: bool | None,
    ) -> None:
        [token] = self._tokens(number, kind)
        is_charged = verb in ("retry", "fail")
        job = self.model.jobs.get(token.id)
        if job is not None and verb == "retry" and job.failures >= job.max_retries:
            verb = "fail"  # as the executor decides
        settled = finish.Settled(
            id=token.id,
            attempt=token.attempt,
            verb=verb,
            delay_seconds=delay * 60,
            keep_seconds=_seconds(keep),
            is_charged=is_charged,
        )

        def act(connection: EngineConnection) -> set[UUID]:
            return finish.read_finished(
                finish.send_settled(
                    connection,
                    [settled],
                    worker_id=token.worker,
                    hand_back_limit=timedelta(minutes=m.HAND_BACK_LIMIT),
                )
            )

        def judge(answer: set[UUID]) -> Change:
            return self.model.settle(
                token,
                verb,
                delay=delay,
                keep=keep,
                is_charged=is_charged,
                answer=answer,
            )

        self._act(side, "hot", act, judge, leave_open=leave_open)

    @on_tokens
    @rule(number=pick, kind=kinds, side=sides, leave_open=left_open)
    def release_held(
        self, number: int, kind: str, side: int, leave_open: bool | None
    ) -> None:
        [token] = self._tokens(number, kind)
        self._release(token, side, leave_open)

    def _release(self, token: Token, side: int, leave_open: bool | None) -> None:
        self._act(
            side,
            "hot",
            lambda connection: lease.release_held(
                connection, token.worker, [(token.id, token.attempt)], reason="tests"
            ),
            partial(self.model.release_held, [token]),
            leave_open=leave_open,
        )

    @acts
    @rule(number=pick, count=st.integers(1, 3), side=sides, leave_open=left_open)
    def renew(
        self, number: int, count: int, side: int, leave_open: bool | None
    ) -> None:
        start = number % WORKERS
        workers = (self.workers[start:] + self.workers[:start])[:count]
        self._act(
            side,
            "duty",
            lambda connection: lease.renew(
                connection, workers, lease=timedelta(minutes=m.LEASE)
            ),
            partial(self.model.renew, workers),
            leave_open=leave_open,
        )

    @precondition(lambda self: self._is_any(["running"]))
    @rule(number=pick, state=st.sampled_from(["draining", "stopped"]), side=sides)
    def set_state(self, number: int, state: Any, side: int) -> None:
        worker = self.workers[number % WORKERS]
        self._act(
            side,
            "duty",
            lambda connection: lease.set_state(connection, [worker], state),
            lambda _: self.model.set_state(worker, state),
        )

    @precondition(
        lambda self: self.blocked is None and any(map(self._is_due, self.workers))
    )
    @rule(side=sides, leave_open=left_open)
    def give_up(self, side: int, leave_open: bool | None) -> None:
        self._act(
            side, "duty", lease.give_up, self.model.give_up, leave_open=leave_open
        )

    @precondition(lambda self: self._is_any(["running"]))
    @rule(number=pick, keep=keeps, side=sides, leave_open=left_open)
    def take(
        self, number: int, keep: int | None, side: int, leave_open: bool | None
    ) -> None:
        worker = self._holder(number)

        def act(connection: EngineConnection) -> int:
            count, _ = lease.take(
                connection, worker, loss_limit=m.LOSS_LIMIT, keep=_delta(keep)
            )
            return count

        judge = partial(self.model.take, worker, keep)
        self._act(side, "duty", act, judge, leave_open=leave_open)

    @precondition(lambda self: self._is_any(["running"]))
    @rule(
        number=pick,
        started=st.sets(pick, max_size=4),
        is_charged=st.sampled_from([True, True, False]),
        keep=keeps,
        side=sides,
        leave_open=left_open,
    )
    def settle_dead_child(
        self,
        number: int,
        started: set[int],
        is_charged: bool,
        keep: int | None,
        side: int,
        leave_open: bool | None,
    ) -> None:
        worker = self._holder(number)
        own = [token for token in self.tokens if token.worker == worker]
        begun = {own[-1 - one % len(own)] for one in started} if own else set()
        begun = set({token.id: token for token in begun}.values())
        child = lease.DeadChild(
            worker_id=worker,
            started=[(token.id, token.attempt, [0.0, 600.0]) for token in begun],
            is_charged=is_charged,
            reason="tests",
        )

        def act(connection: EngineConnection) -> int:
            count, _ = lease.settle_dead_child(
                connection, child, crash_limit=m.CRASH_LIMIT, keep=_delta(keep)
            )
            return count

        def judge(answer: int) -> Change:
            return self.model.settle_dead_child(
                worker, begun, [0, 10], is_charged, keep, answer
            )

        self._act(side, "duty", act, judge, leave_open=leave_open)

    @precondition(lambda self: self._is_any(["scheduled", "retrying"]))
    @rule(limit=st.integers(1, 3), side=sides, leave_open=left_open)
    def promote(self, limit: int, side: int, leave_open: bool | None) -> None:
        def act(connection: EngineConnection) -> tuple[list[UUID], int]:
            [(last,)] = connection.execute("SELECT nextval('relay_ready_seq')")
            count, ready = promote.promote(connection, limit=limit)
            moved = connection.execute(
                "SELECT id, queue, priority FROM relay_job "
                "WHERE state = 'queued' AND ready_seq > %s ORDER BY ready_seq",
                (last,),
            ).fetchall()
            assert {row[1:] for row in moved} == {
                (one.queue, one.priority) for one in ready
            }
            return [row[0] for row in moved], count

        def judge(answer: tuple[list[UUID], int]) -> Change:
            return self.model.promote(limit, *answer)

        self._act(side, "duty", act, judge, leave_open=leave_open)

    @precondition(lambda self: self._is_any(m.FINAL))
    @rule(side=sides, leave_open=left_open)
    def prune(self, side: int, leave_open: bool | None) -> None:
        self._act(
            side, "duty", prune.prune_jobs, self.model.prune, leave_open=leave_open
        )

    @on_jobs
    @rule(
        number=pick,
        verb=st.sampled_from(["cancel", "retry", "replay", "run_now"]),
        side=sides,
        leave_open=left_open,
    )
    def control(
        self, number: int, verb: str, side: int, leave_open: bool | None
    ) -> None:
        job_id = self._job_for(verb, number)
        self._act(
            side,
            "django",
            partial(getattr(control, verb), job_id, actor="tests", using="default"),
            partial(getattr(self.model, verb), job_id),
            leave_open=leave_open,
        )

    @acts
    @rule(
        queue=st.sampled_from(QUEUES),
        for_=st.sampled_from([None, 10, 20, 0, 0]),
        side=sides,
        leave_open=left_open,
    )
    def pause_or_resume(
        self, queue: str, for_: int | None, side: int, leave_open: bool | None
    ) -> None:
        def act() -> bool | None:
            if for_ == 0:
                return control.resume(queue, actor="tests", using="default")
            until = (
                None if for_ is None else datetime.now(UTC) + timedelta(minutes=for_)
            )
            control.pause(
                queue, until=until, actor="tests", using="default", known=QUEUES
            )
            return None

        def judge(answer: bool | None) -> Change:
            if for_ == 0:
                return self.model.resume(queue, answer)
            return self.model.pause(queue, for_)

        self._act(side, "django", act, judge, leave_open=leave_open)

    # --- what must hold --------------------------------------------------------------

    @invariant()
    def the_tables_are_what_the_model_says(self) -> None:
        before, self.seen = self.seen, self._look()
        self._check_changes(before)
        expected = {job_id: self._expected(job_id) for job_id in self.model.jobs}
        assert self.seen == expected
        # In the order of ready_seq, so the places have to rise.
        places = [self.model.jobs[job_id].place[0] for job_id in self.seen]
        assert places == sorted(places)
        self.model.learn_places(list(self.seen))

    def _look(self) -> dict[UUID, Seen]:
        found = {}
        for job_id, *columns, history, attempts in self.observer.execute(LOOK):
            values: Any = (
                *columns,
                tuple(_pair(text) for text in history),
                tuple(_pair(text)[::-1] for text in attempts),
            )
            found[job_id] = Seen(*values)
        return found

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
                assert row.history[-1][0] == "retry"
                assert (row.failures, row.crashes, row.losses) == (0, 0, 0)


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.partition(" ")
    return name, int(number)


def _seconds(keep: int | None) -> float | None:
    return None if keep is None else keep * 60


def _delta(keep: int | None) -> timedelta | None:
    return None if keep is None else timedelta(minutes=keep)


def _new_job(asked: Asked) -> NewJob:
    unique = None
    if asked.key is not None:
        until: Any = None if asked.mode == "window" else asked.mode
        on_conflict: Any = "raise" if asked.raises else "return"
        unique = UniqueKey(
            key=bytes.fromhex(asked.key),
            rule=Unique(
                until=until,
                for_=None if until else timedelta(minutes=asked.window),
                on_conflict="replace" if asked.replaces else on_conflict,
                due="push" if asked.pushes else "keep",
            ),
        )
    return NewJob(
        id=asked.id,
        task="tests.noop",
        queue=asked.queue,
        args=rows.NO_ARGUMENTS,
        max_retries=asked.max_retries,
        priority=asked.priority,
        run_in=timedelta(minutes=asked.run_in) if asked.run_in else None,
        unique=unique,
    )


@pytest.fixture
def sessions(transactional_db: None) -> Iterator[None]:
    relay = {
        "NOTIFY": False,
        "QUEUES": list(QUEUES),
        "RETENTION_FAILED": timedelta(minutes=m.KEEP_FAILED),
    }
    with override_settings(RELAY=relay), rows.other_session() as observer:
        Engine.observer = observer
        Engine.pair = [Side(), Side()]
        yield
        for side in Engine.pair:
            side.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_engine_does_what_the_model_says(sessions: None) -> None:
    run_state_machine_as_test(
        Engine,
        settings=settings(
            max_examples=scaled(800, least=40),
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
