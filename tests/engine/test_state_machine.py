"""Random acts in two interleaved sessions against the model in tests/engine/machine.

Every rule runs the engine's own statements. One transaction may be left open while the
other session acts: what that has to wait for counts as done after it, what skips its
rows as done before. After every rule the tables must be what the model says, and no row
may have changed in a way that is never allowed, whatever the model says. What that
proves, and which mutants it has caught: docs/reliability.md, "The state machine".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from relay.engine import control, enqueue, expire, pause, promote, prune, replay
from relay.engine.connection import EngineConnection
from relay.engine.new_job import NewJob
from relay.unique import Unique, UniqueKey
from tests.engine import rows
from tests.engine.machine import records as m
from tests.engine.machine import sessions
from tests.engine.machine.draws import (
    KEYS,
    QUEUES,
    acts,
    delta,
    keeps,
    left_open,
    minutes,
    pick,
    sides,
)
from tests.engine.machine.records import Asked, Change
from tests.engine.machine.sessions import Side
from tests.engine.machine.state import next_id
from tests.engine.machine.worker_rules import WorkerRules
from tests.scale import scale

# Where the engine has what an operator does to a job.
ACTS = {"cancel": control, "retry": control, "run_now": control, "replay": replay}
# How a job that was asked to stop can end: none of them may run it again.
ENDS = ("retry", "hand_back", "snooze", "release", "held", "taken", "dead")


class Engine(WorkerRules):
    """Every verb of the engine, as a rule."""

    @initialize(priorities=st.lists(st.sampled_from([0, 7]), max_size=4))
    def jobs_are_there(self, priorities: list[int]) -> None:
        for priority in priorities:
            asked = Asked(
                id=next_id(), queue="default", priority=priority, max_retries=1
            )
            self._enqueue(asked, 0, None)

    # --- rules -----------------------------------------------------------------------

    on_jobs = precondition(lambda self: self.blocked is None and self.model.jobs)

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
            self.model.apply(blocked.judge(blocked.answer.result(timeout=60)))

    @precondition(lambda self: self.open is None)
    @rule(
        by=minutes,
        then=st.sampled_from(["nothing", "promote", "expire", "take", "prune"]),
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
        elif then == "expire":
            self.expire(side=side, leave_open=leave_open)
        elif then == "take":
            self.give_up(side=side, leave_open=None)
            self.take(number=by, side=side, leave_open=leave_open)

    def _pass(self, by: int) -> None:
        sessions.let_time_pass(self.observer, by)
        self.model.passes(by)

    @precondition(lambda self: self.blocked is None and len(self.model.jobs) < 10)
    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from([-3, 0, 0, 7]),
        max_retries=st.sampled_from([0, 1, 25]),
        run_in=st.sampled_from([0, 0, 10, 20]),
        deadline_in=st.sampled_from([None, None, 10, 30]),
        side=sides,
        leave_open=left_open,
    )
    def enqueue(self, side: int, leave_open: bool | None, **options: Any) -> None:
        self._enqueue(Asked(id=next_id(), **options), side, leave_open)

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
            id=next_id(),
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
            Asked(id=next_id(), queue="default", priority=priority, max_retries=1)
            for _ in range(count)
        ]
        jobs = [_new_job(one) for one in asked]
        self._act(
            side,
            "django",
            partial(enqueue.insert_many, jobs, using="default"),
            partial(self.model.enqueue_many, asked),
        )

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

    @precondition(lambda self: self._is_any(m.WAITING))
    @rule(side=sides, leave_open=left_open)
    def expire(self, side: int, leave_open: bool | None) -> None:
        self._act(
            side,
            "duty",
            expire.expire,
            self.model.expire,
            leave_open=leave_open,
        )

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
        self._control(verb, self._job_for(verb, number), side, leave_open)

    def _control(
        self, verb: str, job_id: UUID, side: int, leave_open: bool | None
    ) -> None:
        self._act(
            side,
            "django",
            partial(getattr(ACTS[verb], verb), job_id, actor="tests", using="default"),
            partial(getattr(self.model, verb), job_id),
            leave_open=leave_open,
        )

    @precondition(lambda self: self.open is None and self.model.ready(QUEUES))
    @rule(
        number=pick,
        verb=st.sampled_from(["hand_back", "snooze", "retry"]),
        side=sides,
    )
    def a_job_comes_back_again_and_again(
        self, number: int, verb: str, side: int
    ) -> None:
        for _ in range(4):
            self.jobs_go_round(number=number, side=side)
            self.the_tables_are_what_the_model_says()
            for token in self._held_tokens()[:1]:
                self._settle(token, verb, 20, side, None)
                self.the_tables_are_what_the_model_says()
            self._pass(20)
            if self._is_any(["scheduled", "retrying"]):
                self.promote(limit=3, side=side, leave_open=None)
                self.the_tables_are_what_the_model_says()
            if not self.model.ready(QUEUES):
                return

    @precondition(lambda self: self.open is None and self._held_tokens())
    @rule(ends=st.permutations(ENDS), side=sides)
    def jobs_asked_to_stop_end_otherwise(self, ends: list[str], side: int) -> None:
        held = self._held_tokens()
        for token in held:
            self._control("cancel", token.id, side, None)
            self.the_tables_are_what_the_model_says()
        for token, end in zip(held, ends, strict=False):
            if end == "held":
                self._release(token, side, None)
            elif end == "taken":
                self._pass(m.LEASE)
                self.give_up(side=side, leave_open=None)
                self._take(token.worker, side, None)
            elif end == "dead":
                self._settle_dead(token.worker, [token], True, side, None)
            else:
                self._settle(token, end, 10, side, None)
            self.the_tables_are_what_the_model_says()

    @precondition(lambda self: self.open is None and len(self.model.jobs) < 10)
    @rule(minutes=minutes, keep=keeps, side=sides)
    def a_window_outlives_its_job(
        self, minutes: int, keep: int | None, side: int
    ) -> None:
        asked = Asked(
            id=next_id(),
            queue="other",
            priority=7,
            max_retries=1,
            key=KEYS[0],
            mode="window",
            window=minutes,
        )
        self._enqueue(asked, side, None)
        self.the_tables_are_what_the_model_says()
        self.jobs_go_round(number=minutes, side=side)
        self.the_tables_are_what_the_model_says()
        for token in self._held_tokens():
            self._complete([token], keep, side, None)
            self.the_tables_are_what_the_model_says()
        self._pass(10)
        self.prune(side=side, leave_open=None)

    @precondition(lambda self: self.open is None and self.model.ready(QUEUES))
    @rule(number=pick, for_=st.sampled_from([None, 10]), side=sides)
    def a_pause_is_claimed_beside(
        self, number: int, for_: int | None, side: int
    ) -> None:
        job = self.model.jobs[self.model.ready(QUEUES)[0]]
        self.pause_or_resume(queue=job.queue, for_=for_, side=side, leave_open=None)
        worker = self._worker(number)
        self._claim(worker, 4, QUEUES, "start", 1 - side, None)

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
                return pause.resume(queue, actor="tests", using="default")
            until = (
                None if for_ is None else datetime.now(UTC) + timedelta(minutes=for_)
            )
            pause.pause(
                queue, until=until, actor="tests", using="default", known=QUEUES
            )
            return None

        def judge(answer: bool | None) -> Change:
            if for_ == 0:
                return self.model.resume(queue, answer)
            return self.model.pause(queue, for_)

        self._act(side, "django", act, judge, leave_open=leave_open)


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
        deadline_in=delta(asked.deadline_in),
        unique=unique,
    )


@pytest.fixture
def machine(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type[Engine]]:
    relay = {
        "NOTIFY": False,
        "QUEUES": list(QUEUES),
        "RETENTION_FAILED": delta(m.KEEP["failed"]),
        "RETENTION_CANCELLED": delta(m.KEEP["cancelled"]),
    }
    monkeypatch.setattr(replay, "uuid7", next_id)
    with override_settings(RELAY=relay), rows.other_session() as observer:
        Engine.observer = observer
        Engine.pair = [Side(), Side()]
        yield Engine
        for side in Engine.pair:
            side.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_engine_does_what_the_model_says(machine: type[Engine]) -> None:
    """By default always the same acts; at full size (--full) others each time."""
    is_full = scale() == 1
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=1_000 if is_full else 80,
            stateful_step_count=50,
            derandomize=not is_full,
            database=None,
            phases=tuple(Phase) if is_full else (Phase.generate,),
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
