"""What the engine's statements promise, as a pure model: no database, no clock.

Each verb takes what the statement answered, asserts that the model allows the answer,
and returns the Change the statement has made. Time counts in minutes and stands still
unless passes() moves it; what is written later within a minute has a later tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from relay.engine.enqueue import KeyHolder
from relay.exceptions import DuplicateJob, StateConflict
from relay.unique import Mode

__all__ = ["CRASH_LIMIT", "FINAL", "FOREVER", "HAND_BACK_LIMIT", "KEEP_FAILED"]
__all__ += ["LEASE", "LOSS_LIMIT", "Asked", "Change", "Model", "ModelJob", "Token"]

FINAL = ("completed", "failed", "cancelled")
WAITING = ("blocked", "scheduled", "queued", "retrying")
CRASH_LIMIT = 3
LOSS_LIMIT = 3
# In minutes.
LEASE = 10
KEEP_FAILED = 30
HAND_BACK_LIMIT = 40
FOREVER = 10**9

Order = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a claim has given: the right to finish this attempt."""

    id: UUID
    worker: UUID
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an enqueue asks for; key stands for its hash, in hex."""

    id: UUID
    queue: str
    priority: int
    max_retries: int
    run_in: int = 0
    key: str | None = None
    mode: Mode | None = None
    window: int = 0
    raises: bool = False
    replaces: bool = False
    pushes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of history."""

    name: str
    attempt: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """One row; place is the order of ready_seq, due that of run_at."""

    queue: str
    priority: int
    max_retries: int
    state: str
    place: Order
    due: Order
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    worker: UUID | None = None
    mode: Mode | None = None
    scope_key: str | None = None
    key: str | None = None
    until: int | None = None
    expires: int | None = None
    replay_of: UUID | None = None
    history: tuple[Event, ...] = ()
    attempts: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """One worker's row."""

    state: str
    until: int

    @property
    def is_live(self) -> bool:
        return self.state not in ("lost", "stopped")


@dataclass(slots=True, kw_only=True)
class Change:
    """What a statement writes: rows by their ids, None where it deletes one.

    Attributes:
        locked: rows that it locks besides those it writes.
        queues: minute at which a queue's pause ends; None where it is resumed.
    """

    jobs: dict[UUID, ModelJob | None] = field(default_factory=dict)
    workers: dict[UUID, Lease] = field(default_factory=dict)
    queues: dict[str, int | None] = field(default_factory=dict)
    locked: set[UUID] = field(default_factory=set)


class Model:
    """The rows as they are committed, and what one open transaction has locked."""

    def __init__(self) -> None:
        self.clock = 0
        self.jobs: dict[UUID, ModelJob] = {}
        self.workers: dict[UUID, Lease] = {}
        self.paused: dict[str, int] = {}
        self.locked: set[UUID] = set()
        self._ticks = 0

    # --- the frame -------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        for job_id, job in change.jobs.items():
            if job is None:
                del self.jobs[job_id]
            else:
                self.jobs[job_id] = job
        self.workers |= change.workers
        for queue, until in change.queues.items():
            if until is None:
                self.paused.pop(queue, None)
            else:
                self.paused[queue] = until

    def lock(self, change: Change) -> None:
        self.locked = {*change.jobs, *change.workers, *change.locked}

    def unlock(self) -> None:
        self.locked = set()

    def passes(self, minutes: int) -> None:
        self.clock += minutes

    def learn_places(self, ids: Sequence[UUID]) -> None:
        """Take in the order of rows to which one statement gave their places."""
        for rank, job_id in enumerate(ids):
            job = self.jobs[job_id]
            self.jobs[job_id] = replace(job, place=(job.place[0], rank))

    def ready(self, queues: Sequence[str]) -> list[UUID]:
        """Return what a claim over these queues may take, in its order."""
        rank = {
            queue: place
            for place, queue in enumerate(queues)
            if self.paused.get(queue, 0) <= self.clock
        }
        found = [
            job_id
            for job_id, job in self.jobs.items()
            if job.state == "queued" and job.queue in rank and job_id not in self.locked
        ]

        def order(job_id: UUID) -> tuple[int, int, Order]:
            job = self.jobs[job_id]
            return rank[job.queue], -job.priority, job.place

        return sorted(found, key=order)

    def holds(self, token: Token) -> bool:
        job = self.jobs.get(token.id)
        return (
            job is not None
            and job.state == "running"
            and (job.worker, job.attempt) == (token.worker, token.attempt)
        )

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _place(self) -> Order:
        return self._tick(), 0

    def _due(self, minutes: int) -> Order:
        return self.clock + minutes, self._tick()

    def _noted(self, job: ModelJob, name: str) -> tuple[Event, ...]:
        return *job.history, Event(name=name, attempt=job.attempt, at=self.clock)

    def _ended(self, job: ModelJob, state: str, keep: int | None) -> ModelJob:
        expires = None if keep is None else self.clock + keep
        is_ahead = job.until is not None and job.until > self.clock
        if job.until is not None and expires is not None and job.until > expires:
            expires = job.until
        return replace(
            job, state=state, expires=expires, key=job.key if is_ahead else None
        )

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
            done = self._ended(job, "completed", keep)
            change.jobs[job_id] = None if keep == 0 and not is_ahead else done
        return change

    def settle(
        self,
        token: Token,
        verb: str,
        *,
        delay: int,
        keep: int | None,
        is_charged: bool,
        answer: object,
    ) -> Change:
        if not self.holds(token):
            assert answer == set()
            return Change()
        assert answer == {token.id}
        job = self.jobs[token.id]
        if verb == "hand_back" and self._is_handed_back_too_long(job):
            verb = "fail"
        job = replace(job, failures=job.failures + is_charged)
        if verb in ("retry", "fail"):
            job = replace(job, attempts=(*job.attempts, (job.attempt, verb)))
        if verb == "fail":
            return Change(jobs={token.id: self._ended(job, "failed", keep)})
        job = replace(job, worker=None, history=self._noted(job, verb))
        if verb == "release":
            job = replace(job, state="queued", place=self._place())
        else:
            job = replace(job, state="retrying", due=self._due(delay))
        return Change(jobs={token.id: job})

    def _is_handed_back_too_long(self, job: ModelJob) -> bool:
        since: int | None = None
        for event in job.history:
            if event.name == "hand_back":
                since = event.at if since is None else since
            elif event.name in ("retry", "snooze", "crash"):
                since = None
        return since is not None and since + HAND_BACK_LIMIT <= self.clock

    def release_held(self, tokens: Sequence[Token], answer: object) -> Change:
        valid = [token.id for token in tokens if self.holds(token)]
        assert answer == set(valid)
        change = Change()
        place = self._place()
        for job_id in valid:
            job = self.jobs[job_id]
            change.jobs[job_id] = replace(
                job,
                state="queued",
                worker=None,
                place=place,
                history=self._noted(job, "release"),
            )
        return change

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

    def take(self, worker: UUID, keep: int | None, answer: int) -> Change:
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
                history=self._noted(job, "reclaim"),
            )
            change.jobs[job_id] = (
                self._ended(job, "failed", keep)
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
        keep: int | None,
        answer: int,
    ) -> Change:
        held = self._held(worker)
        assert answer == len(held)
        begun = {(token.id, token.attempt) for token in started}
        change = Change()
        place, tick = self._place(), self._tick()
        for job_id in held:
            job = self.jobs[job_id]
            if not is_charged or (job_id, job.attempt) not in begun:
                change.jobs[job_id] = replace(
                    job,
                    state="queued",
                    worker=None,
                    place=place,
                    history=self._noted(job, "release"),
                )
                continue
            job = replace(
                job,
                crashes=job.crashes + 1,
                attempts=(*job.attempts, (job.attempt, "crash")),
                history=self._noted(job, "crash"),
            )
            if job.crashes >= CRASH_LIMIT:
                change.jobs[job_id] = self._ended(job, "failed", keep)
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
        def act(job: ModelJob) -> ModelJob:
            ended = self._ended(job, "cancelled", KEEP_FAILED)
            return replace(ended, worker=None)

        return self._act("cancel", job_id, WAITING, act, answer)

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
                key=key,
            )

        change = self._act("retry", job_id, ("failed", "cancelled"), act, answer)
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
    ) -> Change:
        job = self.jobs.get(job_id)
        if job is None or job.state not in states:
            assert isinstance(answer, StateConflict)
            return Change(locked=set() if job is None else {job_id})
        assert answer is None
        done = act(replace(job, history=self._noted(job, name)))
        return Change(jobs={job_id: done})

    def pause(self, queue: str, minutes: int | None) -> Change:
        until = FOREVER if minutes is None else self.clock + minutes
        return Change(queues={queue: until})

    def resume(self, queue: str, answer: object) -> Change:
        assert answer == (queue in self.paused)
        return Change(queues={queue: None})
