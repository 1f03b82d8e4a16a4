"""The model's claims, finishes and leases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from tests.engine.machine.frame import Frame
from tests.engine.machine.records import (
    CRASH_LIMIT,
    HAND_BACK_LIMIT,
    LEASE,
    LOSS_LIMIT,
    SNOOZE_LIMIT,
    Change,
    ModelJob,
    Token,
)

__all__ = ["Attempts"]


class Attempts(Frame):
    """What a claim gives, and every way in which an attempt ends."""

    # --- claim and finish ------------------------------------------------------------

    def claim(
        self,
        worker: UUID,
        queues: Sequence[str],
        limit: int,
        is_exact: bool,
        answer: Sequence[tuple[UUID, int]],
    ) -> Change:
        ready = self.ready(queues) if self.workers[worker].is_live else []
        claimed = [job_id for job_id, _ in answer]
        if is_exact:
            assert claimed == ready[:limit]
        assert len(claimed) <= limit
        assert claimed == [job_id for job_id in ready if job_id in claimed]
        change = Change()
        for job_id, attempt in answer:
            job = self.jobs[job_id]
            assert attempt == job.attempt + 1
            key = None if job.mode == "started" else job.key
            change.jobs[job_id] = replace(
                job, state="running", attempt=attempt, worker=worker, key=key
            )
        return change

    def complete(
        self, tokens: Sequence[Token], keep: int | None, answer: object
    ) -> Change:
        valid = [token.id for token in tokens if self.holds(token)]
        assert answer == set(valid)
        change = Change()
        for job_id in valid:
            job = self.jobs[job_id]
            is_ahead = job.until is not None and job.until > self.clock
            done = self._kept(job, "completed", keep)
            change.jobs[job_id] = None if keep == 0 and not is_ahead else done
        return change

    def settle(
        self,
        token: Token,
        verb: str,
        *,
        delay: int,
        is_charged: bool,
        answer: object,
    ) -> Change:
        if not self.holds(token):
            assert answer == set()
            return Change()
        assert answer == {token.id}
        job = self.jobs[token.id]
        verb = self._verb(job, verb)
        if verb == "fail":
            job = replace(
                job,
                failures=job.failures + is_charged,
                attempts=(*job.attempts, (job.attempt, "fail")),
            )
            return Change(jobs={token.id: self._ended(job, "failed")})
        if job.is_asked or verb == "cancel":
            if verb != "release":  # it had an error to tell
                job = replace(job, attempts=(*job.attempts, (job.attempt, "cancel")))
            return Change(jobs={token.id: self._stopped(job)})
        if verb == "retry":
            job = replace(job, attempts=(*job.attempts, (job.attempt, "retry")))
        job = replace(
            job,
            worker=None,
            failures=job.failures + is_charged,
            history=self._noted(job, verb),
        )
        if verb == "release":
            job = replace(job, state="queued", place=self._place())
        else:
            job = replace(job, state="retrying", due=self._due(delay))
        return Change(jobs={token.id: job})

    def _verb(self, job: ModelJob, verb: str) -> str:
        if verb == "hand_back" and self._is_handed_back_too_long(job):
            return "fail"
        if verb == "snooze" and self._snoozes(job) >= SNOOZE_LIMIT:
            return "fail"
        return verb

    def _snoozes(self, job: ModelJob) -> int:
        """Count the snoozes since the last retry by hand."""
        names = [event.name for event in job.history]
        if "manual" in names:
            last = len(names) - 1 - names[::-1].index("manual")
            names = names[last:]
        return names.count("snooze")

    def _is_handed_back_too_long(self, job: ModelJob) -> bool:
        since: int | None = None
        for event in job.history:
            if event.name == "hand_back":
                since = event.at if since is None else since
            elif event.name in ("retry", "manual", "snooze", "crash"):
                since = None
        return since is not None and since + HAND_BACK_LIMIT <= self.clock

    def release_held(self, tokens: Sequence[Token], answer: object) -> Change:
        valid = [token.id for token in tokens if self.holds(token)]
        assert answer == set(valid)
        change = Change()
        place = self._place()
        for job_id in valid:
            job = self.jobs[job_id]
            change.jobs[job_id] = (
                replace(self._stopped(job), worker=None, place=place)
                if job.is_asked
                else self._released(job, place)
            )
        return change

    def _released(self, job: ModelJob, place: int) -> ModelJob:
        return replace(
            job,
            state="queued",
            worker=None,
            place=place,
            history=self._noted(job, "release"),
        )

    # --- leases ----------------------------------------------------------------------

    def renew(self, workers: Iterable[UUID], answer: object) -> Change:
        live = [worker for worker in workers if self.workers[worker].is_live]
        assert answer == set(live)
        return Change(
            workers={
                worker: replace(self.workers[worker], until=self.clock + LEASE)
                for worker in live
            }
        )

    def set_state(self, worker: UUID, state: str) -> Change:
        if not self.workers[worker].is_live:
            return Change()
        return Change(workers={worker: replace(self.workers[worker], state=state)})

    def give_up(self, answer: Sequence[UUID]) -> Change:
        dead = [
            worker
            for worker, row in self.workers.items()
            if row.is_live and row.until <= self.clock and worker not in self.locked
        ]
        assert sorted(answer) == sorted(dead)
        return Change(
            workers={
                worker: replace(self.workers[worker], state="lost") for worker in dead
            }
        )

    def _held(self, worker: UUID) -> list[UUID]:
        return [
            job_id
            for job_id, job in self.jobs.items()
            if job.state == "running" and job.worker == worker
        ]

    def take(self, worker: UUID, answer: int) -> Change:
        held = [] if self.workers[worker].is_live else self._held(worker)
        taken = [job_id for job_id in held if job_id not in self.locked]
        assert answer == len(taken)
        change = Change()
        place = self._place()
        for job_id in taken:
            job = self.jobs[job_id]
            job = replace(
                job,
                losses=job.losses + 1,
                attempts=(*job.attempts, (job.attempt, "lost")),
            )
            if job.is_asked:
                change.jobs[job_id] = self._stopped(job)
                continue
            job = replace(job, history=self._noted(job, "reclaim"))
            change.jobs[job_id] = (
                self._ended(job, "failed")
                if job.losses >= LOSS_LIMIT
                else replace(job, state="queued", worker=None, place=place)
            )
        return change

    def settle_dead_child(
        self,
        worker: UUID,
        started: Iterable[Token],
        delays: Sequence[int],
        is_charged: bool,
        answer: int,
    ) -> Change:
        held = self._held(worker)
        assert answer == len(held)
        begun = {(token.id, token.attempt) for token in started}
        change = Change()
        place, tick = self._place(), self._tick()
        for job_id in held:
            job = self.jobs[job_id]
            if job.is_asked:
                change.jobs[job_id] = self._stopped(job)
                continue
            if not is_charged or (job_id, job.attempt) not in begun:
                change.jobs[job_id] = self._released(job, place)
                continue
            job = replace(
                job,
                crashes=job.crashes + 1,
                attempts=(*job.attempts, (job.attempt, "crash")),
                history=self._noted(job, "crash"),
            )
            if job.crashes >= CRASH_LIMIT:
                change.jobs[job_id] = self._ended(job, "failed")
            elif job.crashes == 1:
                change.jobs[job_id] = replace(
                    job, state="queued", worker=None, place=place
                )
            else:
                delay = delays[min(job.crashes, len(delays)) - 1]
                change.jobs[job_id] = replace(
                    job, state="retrying", worker=None, due=(self.clock + delay, tick)
                )
        return change
