"""What the engine's statements promise, as a pure model: no database, no clock.

Each verb takes what the statement answered, asserts that the model allows the answer,
and returns the Change the statement has made. Time counts in minutes and stands still
unless passes() moves it; what is written later within a minute has a later tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from relay.engine.new_job import KeyHolder
from relay.exceptions import DuplicateJob, StateConflict
from tests.engine.machine.attempts import Attempts
from tests.engine.machine.records import (
    FINAL,
    FOREVER,
    WAITING,
    Asked,
    Change,
    ModelJob,
)

__all__ = ["Model"]


class Model(Attempts):
    """All verbs: enqueue, duties and what an operator does, besides the attempts'."""

    # --- enqueue ---------------------------------------------------------------------

    def enqueue(self, asked: Asked, answer: object) -> Change:
        if asked.key is None:
            assert answer is None
            if asked.id in self.jobs:
                return Change()
            return Change(jobs={asked.id: self._new(asked)})
        held = [job_id for job_id, job in self.jobs.items() if job.key == asked.key]
        assert len(held) <= 1
        if not held:
            assert answer is None
            return Change(jobs={asked.id: self._new(asked)})
        [holder_id] = held
        holder = self.jobs[holder_id]
        if (asked.replaces or asked.pushes) and holder.state in WAITING:
            assert isinstance(answer, KeyHolder)
            assert answer.id == holder_id
            return Change(jobs={holder_id: self._changed(holder, asked)})
        is_over = holder.until is None or holder.until <= self.clock
        if holder.state in FINAL and is_over:
            assert answer is None
            freed = replace(holder, key=None)
            return Change(jobs={holder_id: freed, asked.id: self._new(asked)})
        if asked.raises:
            assert isinstance(answer, DuplicateJob)
            assert answer.job_id == holder_id
        else:
            assert isinstance(answer, KeyHolder)
            assert answer.id == holder_id
        return Change()

    def enqueue_many(self, asked: Iterable[Asked], answer: object) -> Change:
        assert answer == {}
        return Change(jobs={one.id: self._new(one) for one in asked})

    def _new(self, asked: Asked) -> ModelJob:
        until = {
            "window": self.clock + asked.window,
            "forever": FOREVER,
        }.get(asked.mode or "")
        return ModelJob(
            queue=asked.queue,
            priority=asked.priority,
            max_retries=asked.max_retries,
            state="scheduled" if asked.run_in else "queued",
            place=self._place(),
            due=self._due(asked.run_in),
            deadline=(
                None if asked.deadline_in is None else self.clock + asked.deadline_in
            ),
            mode=asked.mode,
            scope_key=asked.key,
            key=asked.key,
            until=until,
        )

    def _changed(self, job: ModelJob, asked: Asked) -> ModelJob:
        if not asked.pushes or job.state not in ("scheduled", "queued"):
            return job
        state = "scheduled" if asked.run_in else "queued"
        return replace(
            job, state=state, due=self._due(asked.run_in), place=self._place()
        )

    # --- duties ----------------------------------------------------------------------

    def promote(self, limit: int, moved: Sequence[UUID], answer: int) -> Change:
        """Take in what became ready: moved, in the order of its places."""
        due = [
            job_id
            for job_id, job in self.jobs.items()
            if job.state in ("scheduled", "retrying")
            and job.due[0] <= self.clock
            and job_id not in self.locked
        ]
        due.sort(key=lambda job_id: self.jobs[job_id].due)
        wanted = [self.jobs[job_id].due for job_id in due[:limit]]
        assert answer == len(wanted)
        assert set(moved) <= set(due)
        assert [self.jobs[job_id].due for job_id in moved] == wanted
        return Change(
            jobs={
                job_id: replace(self.jobs[job_id], state="queued", place=self._place())
                for job_id in moved
            }
        )

    def expire(self, answer: int) -> Change:
        late = [
            job_id
            for job_id, job in self.jobs.items()
            if job.state in WAITING
            and job.deadline is not None
            and job.deadline <= self.clock
            and job_id not in self.locked
        ]
        assert answer == len(late)
        change = Change()
        for job_id in late:
            job = self.jobs[job_id]
            job = replace(job, worker=None, history=self._noted(job, "expire"))
            change.jobs[job_id] = self._ended(job, "failed")
        return change

    def prune(self, answer: int) -> Change:
        old = [
            job_id
            for job_id, job in self.jobs.items()
            if job.state in FINAL
            and job.expires is not None
            and job.expires <= self.clock
            and (job.until is None or job.until <= self.clock)
            and job_id not in self.locked
        ]
        assert answer == len(old)
        return Change(jobs=dict.fromkeys(old))

    # --- control ---------------------------------------------------------------------

    def cancel(self, job_id: UUID, answer: object) -> Change:
        job = self.jobs.get(job_id)
        if job is not None and job.state == "running":
            assert answer is False
            if job.is_asked:
                return Change(locked={job_id})
            asked = replace(job, is_asked=True)
            return Change(
                jobs={
                    job_id: replace(asked, history=self._noted(job, "cancel_request"))
                }
            )

        def act(job: ModelJob) -> ModelJob:
            ended = self._ended(job, "cancelled")
            return replace(ended, worker=None)

        return self._act("cancel", job_id, WAITING, act, answer, gives=True)

    def run_now(self, job_id: UUID, answer: object) -> Change:
        def act(job: ModelJob) -> ModelJob:
            return replace(job, state="queued", due=self._due(0), place=self._place())

        return self._act("run_now", job_id, ("scheduled", "retrying"), act, answer)

    def retry(self, job_id: UUID, answer: object) -> Change:
        job = self.jobs.get(job_id)
        freed: dict[UUID, ModelJob | None] = {}
        key = None if job is None else self._retaken(job)
        for other_id, other in self.jobs.items():
            if key is None or other_id == job_id or other.key != key:
                continue
            if job is None or job.state not in ("failed", "cancelled"):
                continue
            if other.state not in FINAL or (other.until or 0) > self.clock:
                assert isinstance(answer, StateConflict)
                return Change(locked={job_id})
            freed[other_id] = replace(other, key=None)

        def act(job: ModelJob) -> ModelJob:
            return replace(
                job,
                state="queued",
                place=self._place(),
                due=self._due(0),
                failures=0,
                crashes=0,
                losses=0,
                worker=None,
                expires=None,
                deadline=(job.deadline if (job.deadline or 0) > self.clock else None),
                is_asked=False,
                key=key,
            )

        change = self._act("manual", job_id, ("failed", "cancelled"), act, answer)
        change.jobs |= freed
        return change

    def _retaken(self, job: ModelJob) -> str | None:
        if job.key is not None:
            return job.key
        return None if job.mode == "started" and job.attempt else job.scope_key

    def replay(self, job_id: UUID, answer: object) -> Change:
        job = self.jobs.get(job_id)
        is_under_way = any(
            other.replay_of == job_id and other.state not in FINAL
            for other in self.jobs.values()
        )
        if job is None or job.state not in FINAL or is_under_way:
            assert isinstance(answer, StateConflict)
            return Change(locked=set() if job is None else {job_id})
        assert isinstance(answer, UUID)
        new = ModelJob(
            queue=job.queue,
            priority=job.priority,
            max_retries=job.max_retries,
            state="queued",
            place=self._place(),
            due=self._due(0),
            replay_of=job_id,
        )
        noted = replace(job, history=self._noted(job, "replay"))
        return Change(jobs={job_id: noted, answer: new})

    def _act(
        self,
        name: str,
        job_id: UUID,
        states: Sequence[str],
        act: Callable[[ModelJob], ModelJob],
        answer: object,
        *,
        gives: object = None,
    ) -> Change:
        job = self.jobs.get(job_id)
        if job is None or job.state not in states:
            assert isinstance(answer, StateConflict)
            return Change(locked=set() if job is None else {job_id})
        assert answer is gives
        done = act(replace(job, history=self._noted(job, name)))
        return Change(jobs={job_id: done})

    def pause(self, queue: str, minutes: int | None) -> Change:
        until = FOREVER if minutes is None else self.clock + minutes
        return Change(queues={queue: until})

    def resume(self, queue: str, answer: object) -> Change:
        assert answer == (queue in self.paused)
        return Change(queues={queue: None}) if answer else Change()
